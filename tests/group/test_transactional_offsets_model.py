"""Transactional and plain commits in any order, against what Kafka's rules make of the same log.

one truth      a coordinator that loads any part of the log, with a snapshot or without, knows what the one that wrote
               it knew there
no bad start   a stable fetch returns only offsets that no record in the log can change any more
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.group.requests import DeleteGroups, OffsetDelete
from sparklog.group.shard import GroupShard
from sparklog.log.log import Log
from sparklog.records.arrow import encode_all
from sparklog.records.batch import iterate_headers
from sparklog.records.markers import read_marker
from sparklog.records.records import Record, iterate_records
from support.groups.transactions import HELD, TransactionalWorld, fetch, orders
from support.runs.seeds import examples

pytestmark = pytest.mark.slow

LATER_MS = 8 * 86_400_000
Key = tuple[str, int]


@dataclass
class KafkaRules:
    """The committed and the pending offsets, each with its place in the log (OffsetMetadataManager)."""

    committed: dict[Key, tuple[int, int]] = field(default_factory=dict)
    pending: dict[int, dict[Key, tuple[int, int]]] = field(default_factory=dict)

    def copy(self) -> KafkaRules:
        return KafkaRules(dict(self.committed), {producer: dict(each) for producer, each in self.pending.items()})

    def remove(self, key: Key) -> None:
        self.committed.pop(key, None)
        for each in self.pending.values():
            each.pop(key, None)

    def end(self, producer_id: int, *, is_commit: bool) -> set[Key]:
        """Return the keys whose offset this could change."""
        ended = {key: place for key, place in self.pending.pop(producer_id, {}).items() if place > self.place(key)}
        if is_commit:
            self.committed |= ended
        return set(ended)

    def place(self, key: Key) -> tuple[int, int]:
        return self.committed.get(key, (-1, -1))

    def known(self) -> set[Key]:
        return self.committed.keys() | {key for each in self.pending.values() for key in each}

    def unstable(self) -> set[Key]:
        return {key for each in self.pending.values() for key, place in each.items() if place > self.place(key)}

    def shown(self, group: str) -> dict[int, int]:
        return {number: offset for (name, number), (_, offset) in self.committed.items() if name == group}

    def shown_as_stable(self, group: str, also_unstable: set[Key]) -> dict[int, int]:
        unstable = self.unstable() | also_unstable
        return self.shown(group) | {number: HELD for name, number in unstable if name == group}


class Run:
    """A coordinator and the rules, step by step."""

    def __init__(self) -> None:
        self.world = TransactionalWorld()
        self.rules = KafkaRules()
        self.at: dict[int, KafkaRules] = {}
        """The offsets at log end offsets."""
        self.touched: set[Key] = set()
        """Keys that have changed since commits stopped."""
        self.seen = KafkaRules()
        """The committed part of the log, by the rules."""

    def step(self, name: str, group: str, number: int, producer_id: int, offset: int, is_commit: bool) -> None:
        getattr(self, name)(group, number, producer_id, offset, is_commit)
        if not self.world.is_held:
            self.seen, self.touched = self.rules.copy(), set()
        self.at[self.world.log.log_end_offset] = self.rules.copy()
        for each in "ab":
            assert fetch(self.world.shard, each) == self.seen.shown(each)
            assert fetch(self.world.shard, each, stable=True) == self.rules.shown_as_stable(each, self.touched)

    def commit(self, group: str, number: int, _: int, offset: int, __: bool) -> None:
        self.rules.committed[group, number] = (self.world.log.log_end_offset, offset)
        self.touched.add((group, number))
        self.world.commit(group, number, offset)

    def in_transaction(self, group: str, number: int, producer_id: int, offset: int, _: bool) -> None:
        place = (self.world.log.log_end_offset, offset)
        self.rules.pending.setdefault(producer_id, {})[group, number] = place
        self.world.commit_in_transaction(producer_id, group, number, offset)

    def mark(self, _: str, __: int, producer_id: int, ___: int, is_commit: bool) -> None:
        self.touched |= self.rules.end(producer_id, is_commit=is_commit)
        self.world.mark(producer_id, is_commit=is_commit)

    def delete_offset(self, group: str, number: int, *_: Any) -> None:
        if group in self.world.shard.groups:
            request = OffsetDelete(group_id=group, partitions=[orders(number)])
            if (group, number) in self.rules.known():
                self.touched.add((group, number))
            self.rules.remove((group, number))
            self.world.carry_out(self.world.shard.delete_offsets(request))

    def delete_group(self, group: str, *_: Any) -> None:
        for key in [key for key in self.rules.known() if key[0] == group]:
            self.touched.add(key)
            self.rules.remove(key)
        self.world.carry_out(self.world.shard.delete(DeleteGroups(group_ids=[group])))
        assert group not in self.world.shard.groups

    def expire(self, *_: Any) -> None:
        pending = {key for each in self.rules.pending.values() for key in each if key in self.rules.unstable()}
        for key in self.rules.committed.keys() - pending:
            self.touched.add(key)
            self.rules.remove(key)
        self.world.carry_out(self.world.shard.expire(LATER_MS))
        assert self.world.shard.groups.keys() == {group for group, _ in self.rules.known()}

    def move(self, *_: Any) -> None:
        self.world.move()

    def hold(self, *_: Any) -> None:
        self.world.is_held = True

    def release(self, *_: Any) -> None:
        self.world.release()


def compare(shard: GroupShard, rules: KafkaRules) -> None:
    for group in "ab":
        assert fetch(shard, group) == rules.shown(group)
        assert fetch(shard, group, stable=True) == rules.shown_as_stable(group, set())


def install_snapshot(log: Log, end_offset: int) -> None:
    """Install a snapshot: the newest record of each key below the offset."""
    kept = sorted((offset, key, value) for key, (offset, value) in newest_below(log, end_offset).items() if value)
    columns = {name: [each[at] for each in kept] for at, name in enumerate(("offset", "key", "value"))}
    table = pa.table(columns, pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]))
    writer = log.offset_snapshots.begin(end_offset)
    for batch in encode_all(table, max_batch_bytes=300, default_timestamp_ms=1, keep_offsets=True):
        writer.append(batch)
    log.offset_snapshots.install(writer)


def newest_below(log: Log, end_offset: int) -> dict[bytes | None, tuple[int, bytes | None]]:
    markers: list[tuple[int, int, bool]] = []
    written: list[tuple[int, int | None, Record]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20)
        data = piece.read()
        for position, header in iterate_headers(data):
            for record in iterate_records(data, position):
                if header.is_control:
                    marker = read_marker(record)
                    markers.append((record.offset, header.producer_id, bool(marker and marker.is_commit)))
                else:
                    written.append((record.offset, header.producer_id if header.is_transactional else None, record))
        offset = piece.next_offset
    newest: dict[bytes | None, tuple[int, bytes | None]] = {}
    for at, producer_id, record in written:
        ends = (is_commit for end, ended, is_commit in markers if ended == producer_id and end > at)
        if at < end_offset and (producer_id is None or next(ends, False)):
            newest[record.key] = (at, record.value)
    return newest


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["commit", "commit", "in_transaction", "in_transaction", "in_transaction", "mark", "mark", "delete_offset",
             "delete_group", "expire", "move", "hold", "hold", "release"]
        ),
        st.sampled_from("aaab"), st.sampled_from([0, 0, 0, 1]), st.integers(1, 3), st.integers(0, 99), st.booleans(),
    ),
    min_size=6, max_size=30,
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.floats(0, 1), st.floats(0, 1))
def test_a_coordinator_keeps_to_kafka_s_rules_and_so_does_the_one_that_loads_its_log(
    chosen: list[tuple[str, str, int, int, int, bool]], to_load: float, to_sum_up: float
) -> None:
    run = Run()
    for step in chosen:
        run.step(*step)
    ends = sorted(offset for offset in run.at if offset)
    if ends:
        end_offset = ends[round(to_load * (len(ends) - 1))]
        compare(run.world.load(end_offset), run.at[end_offset])
        install_snapshot(run.world.log, ends[round(to_sum_up * (len(ends) - 1))])
        compare(run.world.load(), run.rules)
