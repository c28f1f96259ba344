"""Waiting for the markers of transactions, which are written after the answer to a commit or an abort."""

from __future__ import annotations

from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer
from support.patience import wait_until


def await_markers(bootstrap: str, *partitions: TopicPartition) -> None:
    """Return once no transaction is open in the partitions."""
    with (
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as committed,
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_uncommitted") as everything,
    ):
        wait_until(
            lambda: committed.end_offsets(partitions) == everything.end_offsets(partitions), "no marker is missing"
        )
