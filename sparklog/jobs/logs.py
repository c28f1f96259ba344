"""The descriptions of logs from which jobs plan. The leader of each partition describes its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.client import Maintenance
from sparklog.jobs.job import JobContext
from sparklog.log.description import LogDescription

Logs = Mapping[TopicPartition, LogDescription | KafkaError]
"""The leader's log of each partition, or the error of a partition that cannot be described."""


def describe_logs(context: JobContext, partitions: Iterable[TopicPartition] | None = None) -> Logs:
    """Return the leaders' logs of these partitions; None: of all."""
    with Maintenance(**context.client) as maintenance:
        return maintenance.describe_logs(partitions)


def compacted_topics(logs: Logs) -> Logs:
    """Return the logs of compacted topics, and the errors of partitions whose topic may be compacted.

    The other partitions of a topic tell its policy.
    """
    known = {name.topic: log.config.cleanup_policy for name, log in logs.items() if isinstance(log, LogDescription)}
    return {name: log for name, log in logs.items() if "compact" in known.get(name.topic, ("compact",))}


def kafka_error_text(error: KafkaError) -> str:
    """Return an error as the reason in a plan or a report: its Kafka name and its message."""
    return f"{error.name}: {error}"


def bytes_between(log: LogDescription, offset_from: int, offset_to: int) -> int:
    """Return the bytes of the segments that hold offsets from `offset_from` to before `offset_to`."""
    return sum(
        segment.size_bytes
        for segment in log.segments
        if segment.base_offset < offset_to and segment.next_offset > offset_from
    )
