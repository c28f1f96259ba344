"""Checks of retention by time in a simulation: it removes only records that are old enough, and all of them.

A record may be removed once some broker's clock is more than retention.ms after the record's timestamp. Clocks drift
and jump, and a log start that one leader has moved stays under the next leader. So the history notes each move of a log
start with the latest time that any clock has shown until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from sparklog.base.ids import TopicPartition
from sparklog.log.log import Log
from sparklog.testing.sim.checks.checker import Anomaly, observations
from sparklog.testing.sim.checks.history import Final, History, LogStartMove, OperationOutcome, Send
from sparklog.testing.sim.clients.workload import FIRST_TIME_MS
from sparklog.testing.sim.cluster import SimCluster

EVERY_S = 0.05
LATE_MS = 5_000
"""How long after its time a segment may still be there: brokers look for old segments every second or two."""


async def watch_log_starts(cluster: SimCluster, partitions: Sequence[TopicPartition], history: History) -> None:
    """Note in the history each move of a log start, on whichever broker it is seen first. Never returns."""
    latest_ms, starts = 0, dict.fromkeys(partitions, 0)
    while True:
        latest_ms = max(latest_ms, *(node.clock.time_ms() for node in cluster.nodes.values()))
        for name in partitions:
            logs = [log for node in cluster.nodes.values() if node.is_running and (log := node.find_log(name))]
            start = max((log.log_start_offset for log in logs), default=0)
            if start > starts[name]:
                starts[name] = start
                moved = history.begin("log starts", LogStartMove(partition=name, latest_ms=latest_ms))
                history.end(moved, OperationOutcome.OK, start)
        await asyncio.sleep(EVERY_S)


def check_removals(history: History, final: Final, retention_ms: int) -> Iterator[Anomaly]:
    """Yield an anomaly for each record that was removed too early. The topic has retention by time only.

    Partitions with an unclean election are left out: other records may have taken the offsets of those that were seen.
    """
    sent_at = {value: operation.invoked_at for operation, send in history.of(Send) for value in send.values}
    clean = {name for name, log in final.items() if not log.unclean}
    placed = {
        place: sent_at[value]
        for place, value, _ in observations(history, final)
        if value in sent_at and place[0] in clean
    }
    told = set()
    for operation, moved in history.of(LogStartMove):
        for (partition, offset), at in placed.items():
            if partition != moved.partition or offset >= operation.result or (partition, offset) in told:
                continue
            told.add((partition, offset))
            age_ms = moved.latest_ms - FIRST_TIME_MS - int(at * 1000)
            if age_ms <= retention_ms:
                yield Anomaly(
                    "removed too early",
                    f"{partition}@{offset} was at most {age_ms} ms old at {operation.ended_at:.3f} s, when the log "
                    f"began at {operation.result}; retention.ms is {retention_ms}",
                )


def is_overdue(log: Log, now_ms: int, retention_ms: int) -> bool:
    """Return whether a leader's log has a segment that retention should have removed."""
    oldest = log.segments[0]
    return bool(oldest.size_bytes) and now_ms - oldest.largest.timestamp_ms > retention_ms + LATE_MS
