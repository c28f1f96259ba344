"""Each step from views and facts to findings, on made-up clusters of three brokers."""

from __future__ import annotations

import pytest

from sparklog.spark.audit.differences import comparable, differing_slices, first_differences
from sparklog.spark.audit.findings import (
    confirmed,
    epoch_disagreements,
    findings,
    hw_above_bytes,
    hw_above_end,
    lagging_in_isr,
    missing_replicas,
    orphan_folders,
    problems_of_bytes,
)
from sparklog.spark.audit.tables import (
    BATCHES,
    BROKERS,
    DIFFERENCES,
    FACTS,
    FINDINGS,
    FOLDERS,
    PROBLEMS,
    REPLICAS,
    STORE,
    AuditTables,
    to_table,
)

T = ("orders", 0)


@pytest.fixture
def tables(spark):
    """A function that makes a cluster: by default three brokers and one partition, led by broker 1, all in sync."""

    def make(*, store=None, brokers=(1, 2, 3), replicas=None, folders=()) -> AuditTables:
        return AuditTables(
            store=to_table(spark, [(*T, 1, 4, [1, 2, 3], [1, 2, 3])] if store is None else store, STORE),
            brokers=to_table(spark, [(broker,) for broker in brokers], BROKERS),
            replicas=to_table(spark, [replica(n) for n in (1, 2, 3)] if replicas is None else replicas, REPLICAS),
            folders=to_table(spark, folders, FOLDERS),
            problems=to_table(spark, [], PROBLEMS),
        )

    return make


def replica(broker, *, leads=None, epoch=4, hw=100, end=100, gaps_to=0, compare_from=0, topic_id="a"):
    return (broker, *T, broker == 1 if leads is None else leads, epoch, 0, hw, end, gaps_to, compare_from, topic_id)


def same(actual, rows, schema=PROBLEMS):
    assert [(field.name, field.dataType.simpleString()) for field in actual.schema] == [
        tuple(column.split()) for column in schema.split(", ")
    ]
    assert sorted(map(tuple, actual.collect()), key=repr) == sorted(rows, key=repr)


def test_a_member_of_the_isr_that_ends_below_what_is_committed_lags(tables):
    store = [(*T, 1, 4, [1, 2, 3], [1, 2])]
    cluster = tables(store=store, replicas=[replica(1), replica(2, end=90), replica(3, end=10)])
    found = "the ISR lists broker 2, whose log ends at 90; the leader, broker 1, has committed up to 100"
    same(lagging_in_isr(cluster, cluster), [(2, *T, "lagging_in_isr", 90, found)])


def test_a_log_that_grows_between_two_looks_does_not_lag(tables):
    before = tables(replicas=[replica(1, hw=100), replica(2, end=90), replica(3)])
    after = tables(replicas=[replica(1, hw=200), replica(2, end=150), replica(3, end=200)])
    same(lagging_in_isr(before, after), [])


def test_a_high_watermark_above_the_end_that_is_told_or_read(spark, tables):
    replicas = tables(replicas=[replica(1), replica(2, hw=120), replica(3, hw=50)]).replicas
    same(
        hw_above_end(replicas, replicas),
        [(2, *T, "hw_above_end", 100, "the high watermark is 120, the log ends at 100")],
    )
    damage = [("corrupt_batch", 40, "position 7: the CRC is wrong")]
    facts = [fact(1, end=40, problems=damage), fact(2, end=120), fact(3, end=40), fact(3, end=50, next_offset=50)]
    same(
        hw_above_bytes(replicas, to_table(spark, facts, FACTS)),
        [(3, *T, "hw_above_end", 40, "the high watermark is 50, the log ends at 40")],
    )


def fact(broker, *, base=0, next_offset=-1, end=100, problems=(), slices=(), gone=False):
    names = ("kind", "offset", "found"), ("number", "cut", "batches", "digest", "first_offset", "last_offset")
    structs = [
        [dict(zip(keys, row, strict=True)) for row in rows]
        for keys, rows in zip(names, (problems, slices), strict=True)
    ]
    return (broker, *T, base, next_offset, "id", gone, 1000, 3, end, *structs)


def test_a_replica_that_its_broker_does_not_have_and_a_broker_that_is_not_there(tables):
    store = [(*T, 1, 4, [1, 2, 3], [1, 2])]
    same(
        missing_replicas(tables(store=store, brokers=(1, 2), replicas=[replica(1)])),
        [
            (2, *T, "missing_replica", None, "broker 2 should have the partition, and has not; it is in the ISR"),
            (3, *T, "silent_broker", None, "broker 3 should have the partition, and is not there"),
        ],
    )


def test_folders_that_nobody_has_assigned_are_orphans(tables):
    store = [(*T, 1, 4, [1, 2], [1, 2])]
    folders = [(1, *T, "/a/orders-0"), (3, *T, "/c/orders-0"), (3, "gone", 5, "/c/gone-5")]
    same(
        orphan_folders(tables(store=store, folders=folders)),
        [
            (3, *T, "orphan_folder", None, "/c/orders-0: the store has assigned the partition to other brokers"),
            (3, "gone", 5, "orphan_folder", None, "/c/gone-5: the store knows no such partition"),
        ],
    )


def test_a_folder_of_a_topic_that_once_had_the_name_is_an_orphan(tables):
    cluster = tables(store=[], replicas=[replica(1), replica(2, topic_id="b"), replica(3)], folders=[(1, *T, "/a")])
    found = "the folder is of topic id b, that of the others is a"
    same(orphan_folders(cluster), [(2, *T, "orphan_folder", None, found)])


def test_a_broker_that_takes_itself_for_leader_or_has_another_epoch_disagrees_with_the_store(tables):
    cluster = tables(replicas=[replica(1), replica(2, leads=True), replica(3, epoch=3)])
    says = "broker {} says: leader {}, epoch {}; the store says: leader is broker 1, epoch 4"
    same(
        epoch_disagreements(cluster),
        [
            (2, *T, "epoch_disagreement", None, says.format(2, "true", 4)),
            (3, *T, "epoch_disagreement", None, says.format(3, "false", 3)),
        ],
    )


def test_what_bytes_say_becomes_problems(spark):
    facts = [fact(2, problems=[("corrupt_batch", 40, "bad")]), fact(3, base=50, gone=True), fact(1)]
    same(
        problems_of_bytes(to_table(spark, facts, FACTS)),
        [
            (2, *T, "corrupt_batch", 40, "bad"),
            (3, *T, "unreadable_file", 50, "the segment's log is not there"),
        ],
    )


def test_the_first_slice_that_is_not_as_most_replicas_have_it(spark, tables):
    first, second = (0, 1, 3, 77, 0, 59), (0, 2, 2, 88, 60, 99)
    facts = [
        fact(1, slices=[(0, 1, 2, 70, 0, 39)], next_offset=40),
        fact(1, base=40, slices=[(0, 1, 1, 70 ^ 77, 40, 59), second]),  # a slice in two segments
        fact(2, slices=[first, (0, 2, 2, 99, 60, 99)]),  # another digest
        fact(3, slices=[first]),  # ends at 60, as its high watermark says
    ]
    replicas = [replica(1), replica(2), replica(3, hw=60)]
    same(
        differing_slices(to_table(spark, facts, FACTS), tables(replicas=replicas).replicas),
        [(*T, 1, 2, 60, 99, 1, 2)],
        DIFFERENCES,
    )
    same(  # it should have the second slice
        differing_slices(to_table(spark, facts, FACTS), tables().replicas).where("broker = 3"),
        [(*T, 1, 3, 60, 99, 1, 2)],
        DIFFERENCES,
    )


def test_two_followers_that_agree_outvote_a_leader_and_a_leader_one_follower(spark, tables):
    slices = {"good": (0, 1, 3, 77, 0, 99), "bad": (0, 1, 3, 78, 0, 99)}
    facts = {n: fact(n, slices=[slices["bad" if n == 1 else "good"]]) for n in (1, 2, 3)}
    three = differing_slices(to_table(spark, list(facts.values()), FACTS), tables().replicas)
    same(three, [(*T, 2, 1, 0, 99, 1, 1)], DIFFERENCES)
    two = tables(replicas=[replica(1), replica(2)]).replicas
    same(differing_slices(to_table(spark, [facts[1], facts[2]], FACTS), two), [(*T, 1, 2, 0, 99, 1, 1)], DIFFERENCES)


def test_what_was_gone_or_cleaned_is_not_compared(spark, tables):
    good, bad = (0, 1, 3, 77, 0, 99), (0, 1, 3, 78, 0, 99)
    facts = [fact(1, slices=[good]), fact(2, slices=[bad]), fact(2, gone=True, next_offset=50)]
    same(
        differing_slices(to_table(spark, facts, FACTS), tables(replicas=[replica(1), replica(2)]).replicas),
        [],
        DIFFERENCES,
    )
    cleaned = tables(replicas=[replica(1), replica(2, compare_from=10)]).replicas
    same(differing_slices(to_table(spark, facts[:2], FACTS), cleaned), [], DIFFERENCES)


def batch(broker, base, *, crc=1, epoch=4, count=10, attributes=0, right=True):
    return (broker, *T, base, base + 9, epoch, crc, attributes, -1, count, right)


CHANGED = "broker int, topic string, partition int, next_offset bigint"


def settled(replicas, *, after=None, changed=()):
    """The comparable offsets of replicas that are the same after a reading, unless a test differs."""
    changed = to_table(replicas.sparkSession, changed, CHANGED)
    return comparable(replicas, replicas if after is None else after, changed)


def test_the_first_batch_that_differs_is_named(spark, tables):
    batches = [batch(1, base) for base in (0, 10, 20, 30)]
    batches += [batch(2, 0), batch(2, 10, crc=2, epoch=3), batch(2, 20, crc=2), batch(2, 30)]  # diverged from 10 on
    batches += [batch(3, 0), batch(3, 10), batch(3, 30)]  # 20 is missing
    differences = to_table(spark, [(*T, 1, 2, 0, 39, 1, 2), (*T, 1, 3, 0, 39, 2, 2)], DIFFERENCES)
    same(
        first_differences(to_table(spark, batches, BATCHES), differences, settled(tables().replicas)),
        [
            (
                2, *T, "diverged", 10, "at 10 broker 1 has another batch: leader epoch 4 and CRC 1, here 3 and 2; "
                "1 of 2 slices differ",
            ),
            (3, *T, "missing_batch", 20, "broker 1 has the batch at 20, this one has not; 2 of 2 slices differ"),
        ],
    )  # fmt: skip


def test_what_a_cleaner_did_is_no_difference_and_nothing_is_said_behind_damage(spark, tables):
    batches = [batch(1, base) for base in (0, 10, 20, 30)]
    batches += [batch(2, 0, crc=2, count=4), batch(2, 20, crc=3, attributes=64), batch(2, 30, crc=9)]
    batches += [batch(3, 0), batch(3, 10, right=False)]
    differences = to_table(spark, [(*T, 1, 2, 0, 39, 1, 1), (*T, 1, 3, 0, 39, 1, 1)], DIFFERENCES)
    replicas = tables(replicas=[replica(1), replica(2, gaps_to=30), replica(3)]).replicas
    found = "at 30 broker 1 has another batch: leader epoch 4 and CRC 1, here 4 and 9; 1 of 1 slices differ"
    able = settled(replicas)
    same(first_differences(to_table(spark, batches, BATCHES), differences, able), [(2, *T, "diverged", 30, found)])


def test_a_replica_that_was_being_deleted_while_it_was_read_differs_from_none(spark, tables):
    """Its first segment was read; its last one was gone."""
    facts = [
        fact(1, next_offset=40, slices=[(0, 1, 2, 70, 0, 39)]),
        fact(1, base=40, slices=[(0, 1, 3, 88, 40, 99)]),
        fact(2, next_offset=40, slices=[(0, 1, 2, 70, 0, 39)]),
        fact(2, base=40, gone=True),
    ]
    replicas = tables(replicas=[replica(1), replica(2)]).replicas
    same(differing_slices(to_table(spark, facts, FACTS), replicas), [], DIFFERENCES)


ONE, TWO = replica(1), replica(2)
MOTIONS = {
    "nothing moves": ([ONE, TWO], [ONE, TWO], [], 0),
    "moved away before batches are read": ([ONE], [ONE, TWO], [], None),
    "moved away while they are": ([ONE, TWO], [ONE], [], None),
    "the other one is moved away": ([ONE, TWO], [TWO], [], None),
    "moved away and back, so its last segment is another": ([ONE, TWO], [ONE, TWO], [(2, *T, -1)], None),
    "moved back, and has begun to fetch": ([ONE, replica(2, hw=5)], [ONE, TWO], [], None),
    "the other one has begun to fetch": ([replica(1, hw=10), TWO], [ONE, TWO], [], 0),
    "a segment is replaced": ([ONE, TWO], [ONE, TWO], [(1, *T, 20)], 20),
    "trimmed": ([ONE, TWO], [ONE, replica(2, compare_from=10)], [], 10),
}
"""What is there before batches are read and afterwards, what has changed, and from where on batches are missing."""


def test_a_difference_stands_only_where_both_replicas_are_the_same_before_and_after_and_say_that_it_is_committed(spark):
    def all_of(rows, number):
        return [(row[0], row[1], number, *row[3:]) for row in rows]

    batches, differences, before, after, changed = [], [], [], [], []
    for number, (seen, seen_after, others, _) in enumerate(MOTIONS.values()):
        batches += all_of([*(batch(1, base) for base in (0, 10, 20, 30)), batch(2, 30)], number)
        differences.append((T[0], number, 1, 2, 0, 39, 1, 1))
        before += all_of(seen, number)
        after += all_of(seen_after, number)
        changed += all_of(others, number)
    able = settled(to_table(spark, before, REPLICAS), after=to_table(spark, after, REPLICAS), changed=changed)
    found = first_differences(to_table(spark, batches, BATCHES), to_table(spark, differences, DIFFERENCES), able)
    offsets = {(row.broker, row.kind, row.partition): row.offset for row in found.collect()}
    assert {motion: offsets.pop((2, "missing_batch", number), None) for number, motion in enumerate(MOTIONS)} == {
        motion: offset for motion, (*_, offset) in MOTIONS.items()
    }
    assert not offsets


def test_a_difference_above_the_start_of_the_logs_is_not_told_behind_damage_below_it(spark, tables):
    batches = [batch(1, base) for base in (0, 10, 20, 30)] + [batch(2, 0, right=False)]
    differences = to_table(spark, [(*T, 1, 2, 0, 39, 1, 1)], DIFFERENCES)
    able = settled(tables(replicas=[replica(1, compare_from=20), replica(2)]).replicas)
    same(first_differences(to_table(spark, batches, BATCHES), differences, able), [])


def test_only_what_is_still_so_at_a_second_look_is_confirmed(spark):
    first = [
        (1, *T, "corrupt_batch", 10, "a"), (1, *T, "corrupt_batch", 20, "a"), (2, *T, "hw_above_end", 50, "a"),
        (3, *T, "missing_replica", None, "a"),
    ]  # fmt: skip
    again = [
        (1, *T, "corrupt_batch", 10, "b"), (1, *T, "corrupt_batch", 30, "b"), (2, *T, "hw_above_end", 60, "b"),
        (3, *T, "missing_replica", None, "b"), (3, *T, "silent_broker", None, "b"),
    ]  # fmt: skip
    same(confirmed(to_table(spark, first, PROBLEMS), to_table(spark, again, PROBLEMS)), [again[0], again[2], again[3]])


def test_findings_say_how_bad_it_is_and_what_to_do(spark, tables):
    problems = [
        (1, *T, "corrupt_batch", 10, "a"), (1, *T, "corrupt_batch", 10, "b"), (2, *T, "corrupt_batch", 10, "c"),
        (2, *T, "wrong_index_entry", 5, "d"), (2, None, None, "unreadable_file", None, "e"),
    ]  # fmt: skip
    found = findings(to_table(spark, problems, PROBLEMS), tables().replicas)
    steps = {row.next_step for row in found.collect()}
    assert any("let one of the others lead" in step for step in steps)
    assert any("stop broker 2, move the folder orders-0 away" in step for step in steps)
    assert not any("{" in step for step in steps)
    same(
        found.drop("next_step"),
        [
            ("critical", "corrupt_batch", 1, *T, 10, "a"),
            ("critical", "corrupt_batch", 2, *T, 10, "c"),
            ("warning", "wrong_index_entry", 2, *T, 5, "d"),
            ("critical", "unreadable_file", 2, None, None, None, "e"),
        ],
        FINDINGS.removesuffix(", next_step string"),
    )
    alone = findings(to_table(spark, problems[:1], PROBLEMS), tables(replicas=[replica(1)]).replicas)
    assert "restore the offsets from a backup" in alone.collect()[0].next_step
