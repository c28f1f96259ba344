"""Opening a folder after a crash, an older broker or an operator."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from sparklog.base.errors import CorruptRecord
from sparklog.base.fs import LocalFs
from sparklog.log.log import Log
from sparklog.log.segment.transaction_index import AbortedTransaction, write_entries
from sparklog.records.batch import HEADER_SIZE
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import (
    START_MS,
    batch,
    check_indexes,
    file_content,
    offsets_in,
    open_log,
    read_all,
    rewrite,
    topic_config,
)

FOLDER = "/logs/orders-0"


@pytest.fixture
def fs() -> MemoryFs:
    """A folder with 12 batches of 3 records, 3 to a segment, closed."""
    fs = MemoryFs()
    log = open_log(fs)
    for number in range(12):
        log.append(batch(3, timestamp_ms=START_MS + number, value=b"x" * 60), leader_epoch=number // 4)
    assert [segment.base_offset for segment in log.segments] == [0, 9, 18, 27]
    log.close()
    return fs


def path(name: str) -> str:
    return f"{FOLDER}/{name}"


def segment(base: int, suffix: str = ".log") -> str:
    return path(f"{base:020d}{suffix}")


def remove_segment(fs: MemoryFs, base: int) -> None:
    """Remove a segment as compaction removes an empty one."""
    for suffix in (".log", ".index", ".timeindex"):
        fs.remove(segment(base, suffix))


def recover(fs: MemoryFs, **how: object) -> Log:
    return open_log(fs, clean=False, **how)


class TestUncleanStop:
    def test_a_whole_log_stays_whole(self, fs: MemoryFs) -> None:
        before = {name: file_content(fs, path(name)) for name in fs.list(FOLDER)}
        log = recover(fs, compacted_to=0)
        assert offsets_in(read_all(log)) == list(range(36))
        assert log.recovery_point == 0
        log.close()
        assert {name: file_content(fs, path(name)) for name in fs.list(FOLDER)} == before

    @pytest.mark.parametrize("cut", [1, 50, 270, 300])
    def test_a_torn_end_is_cut_off(self, fs: MemoryFs, cut: int) -> None:
        content = file_content(fs, segment(27))
        rewrite(fs, segment(27), content[:-cut])
        log = recover(fs, recovery_point=27)
        size = len(content) // 3
        left = 27 + 3 * ((len(content) - cut) // size)
        assert offsets_in(read_all(log)) == list(range(left))
        assert log.segments[-1].size_bytes == (left - 27) // 3 * size
        check_indexes(log)

    @pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 100, b"\x00" * 8 + b"\x7f\xff\xff\xff" + b"\x02" * 80])
    def test_bytes_that_are_no_batch_are_cut_off(self, fs: MemoryFs, tail: bytes) -> None:
        fs.open(segment(27)).append(tail)
        log = recover(fs, recovery_point=27)
        assert offsets_in(read_all(log)) == list(range(36))
        log.append(batch(), leader_epoch=3)
        assert offsets_in(read_all(log))[-1] == 36

    def test_the_first_bad_byte_ends_the_log(self, fs: MemoryFs) -> None:
        content = bytearray(file_content(fs, segment(9)))
        content[len(content) // 3 + HEADER_SIZE + 5] ^= 1
        rewrite(fs, segment(9), content)
        log = recover(fs)
        assert offsets_in(read_all(log)) == list(range(12))
        assert [each.base_offset for each in log.segments] == [0, 9]
        assert [name for name in fs.list(FOLDER) if name.endswith(".log.deleted")] == [
            "00000000000000000018.log.deleted",
            "00000000000000000027.log.deleted",
        ]
        check_indexes(log)

    def test_batches_below_the_recovery_point_are_trusted(self, fs: MemoryFs) -> None:
        content = bytearray(file_content(fs, segment(9)))
        content[HEADER_SIZE + 5] ^= 1  # its CRC is wrong now, and is not checked
        rewrite(fs, segment(9), content)
        log = recover(fs, recovery_point=12)
        assert log.log_end_offset == 36
        assert file_content(fs, segment(9)) == content

    def test_flushed_batches_that_cannot_be_walked_are_not_thrown_away(self, fs: MemoryFs) -> None:
        content = bytearray(file_content(fs, segment(27)))
        content[16] = 9  # magic
        rewrite(fs, segment(27), content)
        with pytest.raises(CorruptRecord, match="below the recovery point 33"):
            recover(fs, recovery_point=33)
        assert file_content(fs, segment(27)) == content

    def test_offsets_that_go_back_end_the_log(self, fs: MemoryFs) -> None:
        content = file_content(fs, segment(27))
        rewrite(fs, segment(27), content + content[: len(content) // 3])
        assert recover(fs).log_end_offset == 36

    def test_indexes_are_built_again(self, fs: MemoryFs) -> None:
        before = {name: file_content(fs, path(name)) for name in fs.list(FOLDER)}
        for base in (0, 18, 27):
            rewrite(fs, segment(base, ".index"), b"garbage!" * 3)
            rewrite(fs, segment(base, ".timeindex"), b"\x7f" * 31)
        recover(fs).close()
        assert {name: file_content(fs, path(name)) for name in fs.list(FOLDER)} == before

    def test_a_gap_is_kept_where_compaction_may_have_left_it(self, fs: MemoryFs) -> None:
        fs.remove(segment(9))
        assert recover(fs).log_end_offset == 36

    @pytest.mark.parametrize(("compacted_to", "end"), [(0, 9), (9, 9), (10, 36), (36, 36)])
    def test_a_gap_that_nothing_explains_is_a_hole(self, fs: MemoryFs, compacted_to: int, end: int) -> None:
        fs.remove(segment(9))
        assert recover(fs, compacted_to=compacted_to).log_end_offset == end

    @pytest.mark.parametrize(
        ("known", "begins", "ends"),
        [
            ({"log_start_offset": 0, "compacted_to": 0}, 0, 0),
            ({"log_start_offset": 5, "compacted_to": 0}, 5, 5),
            ({"log_start_offset": 9, "compacted_to": 0}, 9, 36),
            ({"log_start_offset": 0, "compacted_to": 5}, 9, 36),
            ({"log_start_offset": 0, "compacted_to": 0, "recovery_point": 9}, 9, 36),
            ({"log_start_offset": None, "compacted_to": 0}, 9, 36),
            ({"log_start_offset": 0, "compacted_to": None}, 9, 36),
            ({"log_start_offset": 0, "compacted_to": 0, "clean": True}, 9, 36),
        ],
    )
    def test_a_gap_before_the_first_segment_is_a_hole_where_the_start_is_known(
        self, fs: MemoryFs, known: dict[str, int | None], begins: int, ends: int
    ) -> None:
        remove_segment(fs, 0)
        log = open_log(fs, **({"clean": False} | known))
        assert (log.log_start_offset, log.log_end_offset) == (begins, ends)
        log.append(batch(), leader_epoch=7)
        assert offsets_in(read_all(log)) == [*range(begins, ends), ends]
        assert [each for each in fs.list(FOLDER) if each.endswith(".log")] == (
            [f"{begins:020d}.log"] if begins == ends else [f"{base:020d}.log" for base in (9, 18, 27)]
        )

    def test_a_gap_below_the_recovery_point_is_no_hole(self, fs: MemoryFs) -> None:
        remove_segment(fs, 9)
        assert recover(fs, compacted_to=0, recovery_point=20).log_end_offset == 36

    def test_a_segment_that_begins_inside_another_goes(self, fs: MemoryFs) -> None:
        rewrite(fs, segment(3), file_content(fs, segment(27)))
        assert recover(fs).log_end_offset == 9

    def test_epochs_come_back_from_the_batches(self, fs: MemoryFs) -> None:
        fs.remove(path("leader-epoch-checkpoint"))
        assert recover(fs).epochs.entries == ((0, 0), (1, 12), (2, 24))

    @pytest.mark.parametrize("content", [b"rubbish", b"0\n3\n0 0\n", b""])
    def test_epochs_that_cannot_be_read_come_back_too(self, fs: MemoryFs, content: bytes) -> None:
        rewrite(fs, path("leader-epoch-checkpoint"), content)
        assert open_log(fs).epochs.entries == ((0, 0), (1, 12), (2, 24))

    @pytest.mark.parametrize("known", [{"clean": True}, {"clean": False, "recovery_point": 20}], ids=str)
    def test_epochs_of_flushed_records_come_back_if_their_file_is_gone(
        self, fs: MemoryFs, known: dict[str, int]
    ) -> None:
        fs.remove(path("leader-epoch-checkpoint"))
        assert open_log(fs, **known).epochs.entries == ((0, 0), (1, 12), (2, 24))

    @pytest.mark.parametrize("clean", [True, False])
    def test_epochs_that_cannot_be_read_make_no_hole_of_what_was_compacted(self, fs: MemoryFs, *, clean: bool) -> None:
        remove_segment(fs, 9)
        rewrite(fs, path("leader-epoch-checkpoint"), b"rubbish")
        log = open_log(fs, clean=clean, recovery_point=30, compacted_to=0)
        assert log.log_end_offset == 36
        assert log.recovery_point == 30  # as remembered from now on, with the file still unreadable
        assert log.epochs.entries == ((0, 0), (1, 18), (2, 24))

    def test_epochs_of_lost_records_are_forgotten(self, fs: MemoryFs) -> None:
        rewrite(fs, segment(18), b"no batch" * 10)
        assert recover(fs).epochs.entries == ((0, 0), (1, 12))

    def test_a_huge_claim_takes_no_memory(self, fs: MemoryFs) -> None:
        fs.open(segment(27)).append(bytes(8) + (1 << 30).to_bytes(4, "big") + b"\0\0\0\0\2" + bytes(60))
        fs.open(segment(27)).append(bytes(20_000_000))
        tracemalloc.start()
        try:
            recover(fs, recovery_point=27)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 5_000_000

    def test_a_batch_larger_than_what_is_read_at_once_is_checked(self, fs: MemoryFs) -> None:
        config = topic_config(internal_segment_bytes=10_000_000, max_message_bytes=10_000_000)
        log = open_log(fs, config=config)
        for _ in range(2):
            log.append(batch(value=bytes(3_000_000)), leader_epoch=3)
        log.close()
        assert recover(fs, config=config).log_end_offset == 38
        content = bytearray(file_content(fs, segment(27)))
        content[-10] ^= 1
        rewrite(fs, segment(27), content)
        assert recover(fs, config=config).log_end_offset == 37


class TestCleanStop:
    def test_nothing_is_read_but_the_end(self, fs: MemoryFs) -> None:
        content = bytearray(file_content(fs, segment(9)))
        content[HEADER_SIZE + 5] ^= 1
        rewrite(fs, segment(9), content)
        log = open_log(fs)
        assert (log.log_end_offset, log.recovery_point) == (36, 36)

    def test_a_file_that_does_not_end_with_a_batch_was_not_stopped_cleanly(self, fs: MemoryFs) -> None:
        fs.open(segment(27)).append(b"torn")
        log = open_log(fs)
        assert offsets_in(read_all(log)) == list(range(36))
        assert log.segments[-1].size_bytes % 3 == 0

    def test_missing_indexes_are_built(self, fs: MemoryFs) -> None:
        before = {name: file_content(fs, path(name)) for name in fs.list(FOLDER)}
        fs.remove(segment(0, ".timeindex"))
        fs.remove(segment(9, ".index"))
        log = open_log(fs)
        check_indexes(log)
        log.close()
        assert {name: file_content(fs, path(name)) for name in fs.list(FOLDER)} == before

    def test_an_index_laid_out_in_full_size_ends_at_its_zeros(self, fs: MemoryFs) -> None:
        for suffix in (".index", ".timeindex"):
            fs.open(segment(27, suffix)).append(bytes(12 * 8 * 100))
        log = open_log(fs)
        check_indexes(log)
        log.append(batch(), leader_epoch=3)
        check_indexes(log)

    @pytest.mark.slow
    def test_kafkas_own_folders_open(self, golden: Iterator[str], tmp_path_factory: pytest.TempPathFactory) -> None:
        for clean in (True, False):
            target = tmp_path_factory.mktemp("logs")
            for folder in sorted(golden.iterdir()):  # type: ignore[attr-defined]
                (target / folder.name).mkdir()
                for file in folder.iterdir():
                    if file.suffix not in (".dump", ".jsonl"):
                        (target / folder.name / file.name).write_bytes(file.read_bytes())
                log = open_log(LocalFs(), str(target / folder.name), clean=clean)
                check_indexes(log)
                log.close()
                for file in target.glob(f"{folder.name}/*.log"):
                    assert file.read_bytes() == (folder / file.name).read_bytes()


class TestLeftovers:
    def test_deleted_and_cleaned_files_go(self, fs: MemoryFs) -> None:
        for name in (
            "00000000000000000000.log.deleted",
            "00000000000000000009.log.cleaned",
            "00000000000000000009.index.cleaned",
        ):
            rewrite(fs, path(name), b"anything")
        open_log(fs)
        assert not [name for name in fs.list(FOLDER) if name.endswith((".deleted", ".cleaned"))]

    @pytest.fixture
    def swapped(self, fs: MemoryFs) -> MemoryFs:
        """Segments 9 and 18 have been compacted into one that holds offsets 12 to 14 and 24 to 26, not yet renamed."""
        nine, eighteen = file_content(fs, segment(9)), file_content(fs, segment(18))
        size = len(nine) // 3
        rewrite(fs, segment(9, ".log.swap"), nine[size : 2 * size] + eighteen[2 * size :])
        rewrite(fs, segment(9, ".index.swap"), b"")
        rewrite(fs, segment(9, ".timeindex.swap"), b"")
        return fs

    def check_swapped(self, fs: MemoryFs) -> None:
        log = open_log(fs)
        expected = [*range(9), 12, 13, 14, 24, 25, 26, *range(27, 36)]
        assert offsets_in(read_all(log)) == expected
        assert [each.base_offset for each in log.segments] == [0, 9, 27]
        assert not [name for name in fs.list(FOLDER) if name.endswith(".swap")]

    def test_a_swap_is_carried_on(self, swapped: MemoryFs) -> None:
        self.check_swapped(swapped)

    def test_a_swap_is_carried_on_wherever_it_stopped(self, swapped: MemoryFs) -> None:
        swapped.remove(segment(18))
        swapped.remove(segment(9, ".index"))
        swapped.rename(segment(9, ".timeindex.swap"), segment(9, ".timeindex"))
        self.check_swapped(swapped)

    def test_a_swap_whose_log_was_renamed_is_done(self, swapped: MemoryFs) -> None:
        for base in (9, 18):
            for suffix in (".log", ".index", ".timeindex"):
                swapped.remove(segment(base, suffix))
        swapped.rename(segment(9, ".log.swap"), segment(9))
        self.check_swapped(swapped)

    def test_a_swap_in_force_is_carried_on_whatever_else_was_staged(self, swapped: MemoryFs) -> None:
        for suffix in (".log", ".timeindex"):
            swapped.rename(segment(9, f"{suffix}.swap"), segment(9, suffix))
        rewrite(swapped, segment(0, ".log.cleaned"), b"")
        self.check_swapped(swapped)
        assert not swapped.exists(segment(0, ".log.cleaned"))

    def test_a_swap_without_its_indexes_is_carried_on(self, swapped: MemoryFs) -> None:
        """A crash of Kafka may leave this state."""
        for suffix in (".index.swap", ".timeindex.swap"):
            swapped.remove(segment(9, suffix))
        self.check_swapped(swapped)

    def test_indexes_that_a_swap_left_behind_are_not_believed(self, fs: MemoryFs) -> None:
        """A removed name may be back after a power cut, and then belongs to another file."""
        rewrite(fs, segment(9, ".index.swap"), b"\0\0\0\1\0\0\0\7")
        rewrite(fs, segment(9, ".timeindex.swap"), b"\0" * 12)
        log = open_log(fs)
        assert offsets_in(read_all(log)) == list(range(36))
        check_indexes(log)

    def test_transaction_indexes_that_a_swap_left_behind_are_built_again(self, swapped: MemoryFs) -> None:
        """Either index may belong to the other file; this segment has no aborted transaction."""
        other = write_entries([AbortedTransaction(7, 10, 20, 12)])
        rewrite(swapped, segment(9, ".txnindex.swap"), other)
        rewrite(swapped, segment(9, ".txnindex"), other)
        rewrite(swapped, segment(18, ".txnindex"), other)
        self.check_swapped(swapped)
        assert file_content(swapped, segment(9, ".txnindex")) == b""
        assert not swapped.exists(segment(18, ".txnindex"))

    def test_both_halves_of_a_split_segment_are_complete_or_none(self, swapped: MemoryFs) -> None:
        """Kafka marks the last segment first."""
        for suffix in (".log", ".index", ".timeindex"):
            rewrite(swapped, segment(6, f"{suffix}.cleaned"), b"")
        assert offsets_in(read_all(open_log(swapped))) == list(range(36))

    def test_a_swap_that_was_not_complete_goes(self, swapped: MemoryFs) -> None:
        rewrite(swapped, segment(9, ".log.cleaned"), b"")
        log = open_log(swapped)
        assert offsets_in(read_all(log)) == list(range(36))
        assert not [name for name in swapped.list(FOLDER) if name.endswith((".swap", ".cleaned"))]

    def test_an_index_without_its_log_goes(self, fs: MemoryFs) -> None:
        rewrite(fs, segment(500, ".index"), b"")
        open_log(fs)
        assert not fs.exists(segment(500, ".index"))

    def test_snapshots_that_belong_nowhere_go_and_so_do_broken_ones(self, fs: MemoryFs) -> None:
        rewrite(fs, segment(5, ".snapshot"), b"")
        rewrite(fs, segment(18, ".snapshot"), b"broken")
        recover(fs)
        snapshots = [name for name in fs.list(FOLDER) if name.endswith(".snapshot")]
        assert snapshots == [f"{base:020d}.snapshot" for base in (9, 27, 36)]

    def test_other_files_are_left_alone(self, fs: MemoryFs) -> None:
        rewrite(fs, path("partition.metadata"), b"version: 0\ntopic_id: abc")
        recover(fs).close()
        assert fs.exists(path("partition.metadata"))


class TestLogStart:
    def test_segments_below_it_go(self, fs: MemoryFs) -> None:
        log = open_log(fs, log_start_offset=20)
        assert log.log_start_offset == 20
        assert [each.base_offset for each in log.segments] == [18, 27]

    def test_behind_the_end_empties_the_log(self, fs: MemoryFs) -> None:
        log = open_log(fs, log_start_offset=100)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (100, 100, 0)
        log.append(batch(), leader_epoch=4)
        assert offsets_in(read_all(log)) == [100]

    def test_an_empty_folder_begins_there(self) -> None:
        log = open_log(MemoryFs(), clean=False, log_start_offset=7)
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)
