"""The lag of a streaming query, from the progress that Spark reports.

>>> [lag] = progress(query)
>>> lag.metrics
{'minOffsetsBehindLatest': '0', 'maxOffsetsBehindLatest': '40', 'avgOffsetsBehindLatest': '20.0'}

Spark takes no metrics from a Python source. But it reports the end of a micro-batch, and the ends of the topics when
the batch was planned. The difference has the names of the metrics of Spark's Kafka source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from sparklog.base.ids import TopicPartition
from sparklog.spark.source.offsets import from_json
from sparklog.spark.source.stream import FIRST_START


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of a micro-batch of one source behind the ends of its partitions, when the batch was planned."""

    source: int
    """Number of the source among those of the query, from 0: the index in Spark's `sources`."""
    offsets_behind_latest: Mapping[TopicPartition, int]
    """By partition, the offsets that the micro-batch and those before it have not read."""

    @property
    def total(self) -> int:
        """Offsets behind the latest, of all partitions together."""
        return sum(self.offsets_behind_latest.values())

    @property
    def metrics(self) -> dict[str, str]:
        """The metrics of Spark's Kafka source; empty if there is no partition."""
        behind = self.offsets_behind_latest.values()
        if not behind:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(self.total / len(behind)),
        }


def progress(query: StreamingQuery | StreamingQueryProgress) -> list[SourceLag]:
    """Return the lag of each source that reads topics, from the last progress of a query or one that is given.

    Empty if the query has not reported any progress yet. Also understands Spark's Kafka source; other sources are left
    out.
    """
    last = query if isinstance(query, StreamingQueryProgress) else query.lastProgress
    found = []
    for number, source in enumerate(last["sources"] if last else ()):
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        if end is not None and latest is not None:
            behind = {partition: max(0, offset - end.get(partition, 0)) for partition, offset in latest.items()}
            found.append(SourceLag(number, behind))
    return found


def _offsets(raw: Any) -> dict[TopicPartition, int] | None:
    """Return the offsets in a source's JSON; None if they are not those of topics."""
    try:
        topics = json.loads(raw) if isinstance(raw, str) else raw
        offsets = from_json({topic: numbers for topic, numbers in topics.items() if topic != FIRST_START})
    except (ValueError, TypeError, AttributeError):
        return None
    return offsets if all(isinstance(offset, int) for offset in offsets.values()) else None
