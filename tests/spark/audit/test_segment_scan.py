"""Problems in the bytes of one segment: none in segments of Kafka, and one for every planted fault."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.fs import LocalFs
from sparklog.spark.audit import walk as audit_walk
from sparklog.spark.audit.segment_scan import SegmentScan, SegmentWork, list_batches, scan_segment
from sparklog.spark.audit.tasks import FolderFiles
from support.logs.faulty_replicas import GOLDEN, cut_out, flip, log_of, places, rewrite

SEGMENTS = [(log.parent.name, int(log.stem)) for log in sorted(GOLDEN.glob("*/*.log"))]


def bases(folder: Path) -> list[int]:
    return sorted(int(log.stem) for log in folder.glob("*.log"))


def scan(folder: Path, base_offset: int = 0, **known: object) -> SegmentScan:
    following = [base for base in bases(folder) if base > base_offset]
    lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    work = {
        "next_offset": following[0] if following else -1,
        "epochs": tuple(tuple(map(int, line.split())) for line in lines),
        "compare_to": MAX_LONG,
        **known,
    }
    with ExitStack() as opened:
        files = FolderFiles(LocalFs(), str(folder), base_offset, opened)
        return scan_segment(files, SegmentWork(base_offset=base_offset, **work))


def problems(facts: SegmentScan) -> list[tuple[str, int]]:
    return [(problem.kind, problem.offset) for problem in facts.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven segments that Kafka wrote, each with index entries."""
    shutil.copytree(GOLDEN / "segments-0", tmp_path / "segments-0")
    return tmp_path / "segments-0"


@pytest.mark.parametrize(("name", "base_offset"), SEGMENTS)
def test_nothing_is_found_in_what_kafka_wrote(name, base_offset):
    cleaned = name == "compacted-0"
    assert scan(GOLDEN / name, base_offset, gaps_to=MAX_LONG if cleaned else 0).problems == []


def test_a_gap_that_no_cleaner_made_is_found_between_batches_and_at_the_end_of_a_segment():
    assert problems(scan(GOLDEN / "compacted-0", 1480)) == [("missing_batch", 1480)]
    assert problems(scan(GOLDEN / "compacted-0", 1160)) == [("missing_batch", 1160)]


@pytest.mark.parametrize("at", [8, 9, 16, 17, 23, 40, 61, 200])
def test_a_flipped_bit_is_found_wherever_it_is(folder, at):
    position, _ = places(log_of(folder))[2]
    flip(log_of(folder), position + at)
    assert problems(scan(folder)) == [("corrupt_batch", 80)]


def test_a_flipped_bit_in_what_no_crc_covers_is_found(folder):
    position, _ = places(log_of(folder))[2]
    flip(log_of(folder), position + 7)
    assert ("offset_disorder", 80) in problems(scan(folder))
    flip(log_of(folder), position + 7)
    flip(log_of(folder), position + 15)
    assert problems(scan(folder)) == [("epoch_disagreement", 80)]


def test_batches_behind_damage_are_found_again_through_the_index(folder):
    position, _ = places(log_of(folder))[0]
    flip(log_of(folder), position + 16)
    flip(log_of(folder), places(log_of(folder, 240))[0][0])  # another segment: not this one's business
    facts = scan(folder)
    assert problems(facts) == [("corrupt_batch", 0)]
    assert facts.end_offset == 240


def test_a_missing_batch_is_found_with_its_offsets(folder):
    cut_out(log_of(folder), 3)
    found = [problem for problem in scan(folder).problems if problem.kind == "missing_batch"]
    assert [(problem.offset, problem.found) for problem in found] == [(120, "offsets 120 to 159 are not there")]


def test_a_batch_cut_off_is_damage_in_a_closed_segment_and_a_torn_tail_in_the_last(folder):
    for base in (0, bases(folder)[-1]):
        log = log_of(folder, base)
        log.write_bytes(log.read_bytes()[:-10])
    last = bases(folder)[-1]
    assert problems(scan(folder)) == [("corrupt_batch", 200)]
    assert problems(scan(folder, last)) == [("torn_tail", last + 80)]


def test_a_batch_of_another_leader_epoch_disagrees_with_the_checkpoint(folder):
    rewrite(log_of(folder), 4, epoch=7)
    assert problems(scan(folder, known_to=MAX_LONG)) == [("epoch_disagreement", 160)]
    assert problems(scan(folder, epochs=())) == [("epoch_disagreement", 200)]  # the next one goes back


@pytest.mark.parametrize(("suffix", "at"), [(".index", 3), (".index", 7), (".timeindex", 7), (".timeindex", 10)])
def test_a_wrong_index_entry_is_found(folder, suffix, at):
    index = log_of(folder, 0, suffix)
    assert index.stat().st_size > at
    flip(index, at)
    assert {kind for kind, _ in problems(scan(folder))} == {"wrong_index_entry"}


def test_an_index_that_is_not_there_is_found(folder):
    log_of(folder, 0, ".timeindex").unlink()
    assert problems(scan(folder)) == [("unreadable_file", 0)]


def test_entries_that_kafka_has_yet_to_write_are_none(folder):
    last = bases(folder)[-1]
    for suffix in (".index", ".timeindex"):
        index = log_of(folder, last, suffix)
        index.write_bytes(index.read_bytes() + bytes(24_000))
    assert scan(folder, last).problems == []


def test_a_log_that_is_gone_says_so(folder):
    log_of(folder).unlink()
    assert scan(folder).is_gone


def test_digests_put_together_are_the_same_wherever_segments_end(folder, tmp_path):
    joined = tmp_path / "joined-0"
    joined.mkdir()
    shutil.copy(folder / "leader-epoch-checkpoint", joined)
    log_of(joined).write_bytes(b"".join(log_of(folder, base).read_bytes() for base in bases(folder)))
    log_of(joined, 0, ".index").touch()
    log_of(joined, 0, ".timeindex").touch()

    def whole(of: Path, cuts: tuple[int, ...]) -> dict[tuple[int, int], tuple[int, int]]:
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for base in bases(of):
            for each in scan(of, base, cuts=cuts, compare_from=40, compare_to=1480).slices:
                batches, digest = found.get((each.number, each.cut), (0, 0))
                found[each.number, each.cut] = (batches + each.batches, digest ^ each.digest)
        return found

    assert whole(folder, (40, 600, 1480)) == whole(joined, (40, 600, 1480))
    assert len(whole(folder, (40, 600, 1480))) == 2
    rewrite(log_of(folder, 480), 0)
    assert whole(folder, (40, 600, 1480)) != whole(joined, (40, 600, 1480))


@pytest.mark.parametrize("piece_bytes", [100, 3_000, 10_000])
def test_pieces_end_anywhere(folder, monkeypatch, piece_bytes):
    whole = scan(folder)
    monkeypatch.setattr(audit_walk, "PIECE_BYTES", piece_bytes)
    assert scan(folder) == whole
    flip(log_of(folder), places(log_of(folder))[2][0] + 100)
    assert problems(scan(folder)) == [("corrupt_batch", 80)]


def test_batches_are_listed_up_to_damage(folder):
    flip(log_of(folder), places(log_of(folder))[3][0] + 16)
    with ExitStack() as opened:
        listed = list(list_batches(FolderFiles(LocalFs(), str(folder), 0, opened), 0, 40, 200))
    assert [(batch.base_offset, batch.is_right) for batch in listed] == [(40, True), (80, True), (120, False)]
