"""Open and aborted transactions, read from the files of a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.fs import LocalFs
from sparklog.log.files import LOG, SNAPSHOT, SWAP, TXN_INDEX, segment_name
from sparklog.log.reader import LogReader
from sparklog.log.segment.transaction_index import AbortedTransaction, write_entries
from sparklog.testing.memory_fs import MemoryFs
from support import GOLDEN
from support.logs.builders import file_content, rewrite
from support.logs.transactional_folder import PLAIN, TransactionalFolder

pytestmark = pytest.mark.slow

FOLDER = "/logs/orders-0"

producers = st.integers(1, 4)
steps = st.one_of(
    st.tuples(st.just("write"), producers | st.just(PLAIN)),
    st.tuples(st.sampled_from(["commit", "abort"]), producers),
    st.tuples(st.just("roll"), st.none()),
)
histories = st.lists(steps, min_size=1, max_size=40)


def made(history: list[tuple[str, int]]) -> TransactionalFolder:
    folder = TransactionalFolder(MemoryFs(), FOLDER)
    for what, producer_id in history:
        do(folder, what, producer_id)
    return folder


def do(folder: TransactionalFolder, what: str, producer_id: int) -> None:
    if what == "write":
        folder.write(producer_id)
    elif what == "roll":
        folder.roll()
    else:
        folder.finish(producer_id, commit=what == "commit")


def expected(folder: TransactionalFolder, offset_from: int, offset_to: int) -> set[AbortedTransaction]:
    return {each for each in folder.aborted if each.first_offset < offset_to and each.last_offset >= offset_from}


ABORTED_OVER_SEGMENTS = [
    ("write", 1), ("write", PLAIN), ("roll", None), ("write", 2), ("abort", 1), ("write", 1), ("roll", None),
    ("write", 3), ("abort", 2), ("commit", 1), ("abort", 4), ("write", 4),
]  # fmt: skip


@given(histories)
def test_the_open_transactions_are_those_without_a_marker(history):
    folder = made([("write", PLAIN), *history])
    walked = LogReader(folder.fs, FOLDER).follow_transactions(folder.end)
    assert walked.open == {producer_id: offsets[0] for producer_id, offsets in folder.open.items()}
    assert walked.first_unstable_offset == (folder.last_stable_offset if folder.open else None)
    assert walked.offset == folder.end
    assert walked.aborted == [each for each in folder.aborted if each.last_offset >= folder.base]


@given(histories, st.data())
def test_a_walk_that_goes_on_says_what_a_new_one_says(history, data):
    folder = TransactionalFolder(MemoryFs(), FOLDER)
    folder.write()
    reader = LogReader(folder.fs, FOLDER)
    known = None
    for what, producer_id in history:
        do(folder, what, producer_id)
        if data.draw(st.booleans()):
            known = reader.follow_transactions(folder.end, known)
            fresh = reader.follow_transactions(folder.end)
            assert (known.open, known.offset, known.aborted) == (fresh.open, fresh.offset, fresh.aborted)


@given(histories)
def test_a_transaction_whose_marker_is_above_the_high_watermark_is_open(history):
    folder = TransactionalFolder(MemoryFs(), FOLDER)
    folder.write()
    before = []
    for what, producer_id in history:
        do(folder, what, producer_id)
        before.append((folder.end, {key: offsets[0] for key, offsets in folder.open.items()}))
    reader = LogReader(folder.fs, FOLDER)
    for high_watermark, opened in before:
        assert reader.follow_transactions(high_watermark).open == opened


@given(histories, st.integers(0, 90), st.integers(0, 90))
def test_aborted_transactions_of_a_range_are_found_with_and_without_indexes(history, offset_from, size):
    folder = made([("write", PLAIN), *history])
    reader = LogReader(folder.fs, FOLDER)
    offset_to = min(offset_from + size, folder.last_stable_offset)
    offset_from = min(offset_from, offset_to)
    wanted = expected(folder, offset_from, offset_to)
    walked = reader.follow_transactions(folder.end)
    assert set(reader.aborted_transactions(offset_from, offset_to)) == wanted
    assert set(reader.aborted_transactions(offset_from, offset_to, walked)) == wanted
    for name in [name for name in folder.fs.list(FOLDER) if name.endswith(TXN_INDEX)]:
        rewrite(folder.fs, f"{FOLDER}/{name}", file_content(folder.fs, f"{FOLDER}/{name}")[:-1])
    assert set(reader.aborted_transactions(offset_from, offset_to)) == wanted


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + bytes(34),
        lambda data: data + data,
        lambda data: b"\x00\x01" + data[2:],
        lambda data: write_entries([AbortedTransaction(1, 0, 1, 2)]) + data,
    ],
    ids=["torn", "zeros", "twice", "another version", "a marker of another segment"],
)
def test_a_damaged_index_is_replaced_by_headers_and_markers(damage):
    folder = made(ABORTED_OVER_SEGMENTS)
    path = f"{FOLDER}/{segment_name(folder.base, TXN_INDEX)}"
    rewrite(folder.fs, path, damage(file_content(folder.fs, path)))
    found = LogReader(folder.fs, FOLDER).aborted_transactions(0, folder.last_stable_offset)
    assert set(found) == expected(folder, 0, folder.last_stable_offset) != set()


def test_indexes_that_a_power_cut_has_lost_are_not_missed():
    folder = made([*ABORTED_OVER_SEGMENTS, ("commit", 3), ("commit", 4)])
    rewrite(folder.fs, "/logs/recovery-point-offset-checkpoint", b"0\n1\norders 0 %d\n" % folder.base)
    folder.fs.remove(folder.path(TXN_INDEX))
    reader = LogReader(folder.fs, FOLDER)
    walked = reader.follow_transactions(folder.end)
    assert set(reader.aborted_transactions(0, folder.end, walked)) == set(folder.aborted)


def test_a_damaged_snapshot_costs_only_a_longer_walk():
    folder = made(ABORTED_OVER_SEGMENTS)
    path = f"{FOLDER}/{segment_name(folder.base, SNAPSHOT)}"
    rewrite(folder.fs, path, file_content(folder.fs, path)[:-1])
    walked = LogReader(folder.fs, FOLDER).follow_transactions(folder.end)
    assert walked.open.keys() == {3, 4}


def test_leftovers_of_an_unclean_stop_behind_the_end_are_not_followed():
    folder = made(ABORTED_OVER_SEGMENTS)
    end = folder.end
    rewrite(folder.fs, folder.path(LOG), file_content(folder.fs, folder.path(LOG)) + b"\x07" * 100)
    assert LogReader(folder.fs, FOLDER).follow_transactions(end).offset == end


def test_a_replacement_under_way_hides_no_aborted_transaction():
    """The index of a segment that is about to replace others counts; those of replaced segments may be gone."""
    folder = made(ABORTED_OVER_SEGMENTS)
    fs, names = folder.fs, folder.fs.list(FOLDER)
    logs = [name for name in names if name.endswith(LOG)]
    merged = b"".join(file_content(fs, f"{FOLDER}/{name}") for name in logs[:2])
    entries = b"".join(file_content(fs, f"{FOLDER}/{name}") for name in names if name.endswith(TXN_INDEX))
    rewrite(fs, f"{FOLDER}/{logs[0]}", merged)
    rewrite(fs, f"{FOLDER}/{segment_name(0, TXN_INDEX)}{SWAP}", entries[:34])
    rewrite(fs, f"{FOLDER}/{segment_name(0, '.index')}{SWAP}", b"")
    fs.remove(f"{FOLDER}/{logs[1].removesuffix(LOG)}{TXN_INDEX}")
    found = LogReader(fs, FOLDER).aborted_transactions(5, folder.last_stable_offset)
    assert set(found) == expected(folder, 5, folder.last_stable_offset) != set()


def test_kafkas_folder_has_the_transactions_that_kafka_says(tmp_path: Path):
    shutil.copytree(GOLDEN / "transactional-0", tmp_path / "transactional-0")
    reader = LogReader(LocalFs(), str(tmp_path / "transactional-0"))
    indexed = [AbortedTransaction(6, 21, 41, 42), AbortedTransaction(7, 78, 88, 73)]
    assert reader.aborted_transactions(0, 96) == indexed
    assert reader.aborted_transactions(42, 96) == indexed[1:]
    assert reader.follow_transactions(101).open == {7: 96}
    (tmp_path / "transactional-0" / segment_name(101, SNAPSHOT)).unlink()
    walked = reader.follow_transactions(101)
    assert (walked.open, walked.aborted) == ({7: 96}, indexed)
