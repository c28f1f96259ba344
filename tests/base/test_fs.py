"""One suite for every file system: the properties that the log relies on."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path
from typing import ClassVar

import pytest
from pyarrow import fs as pafs

from sparklog.arrow.filesystems import ArrowFs
from sparklog.base.fs import Fs, LocalFs, ReadFs
from sparklog.testing.memory_fs import MemoryFs, PowerCut


class ReadContract:
    """For every `ReadFs`. `root` holds the file `a/file` with `CONTENT` and the folder `a/folder`."""

    CONTENT: ClassVar[bytes] = bytes(range(100))

    @pytest.fixture
    def root(self) -> str:
        raise AssertionError

    @pytest.fixture
    def read_fs(self) -> ReadFs:
        raise AssertionError

    def test_reads_ranges(self, read_fs: ReadFs, root: str) -> None:
        file = read_fs.open_read(f"{root}/a/file")
        assert file.size == 100
        assert file.read_at(0, 100) == self.CONTENT
        assert file.read_at(10, 5) == self.CONTENT[10:15]
        assert file.read_at(3, 0) == b""
        file.close()

    def test_a_range_behind_the_end_is_shorter(self, read_fs: ReadFs, root: str) -> None:
        file = read_fs.open_read(f"{root}/a/file")
        assert file.read_at(95, 10) == self.CONTENT[95:]
        assert file.read_at(100, 10) == b""
        assert file.read_at(1000, 10) == b""

    def test_ranges_may_be_read_by_several_threads(self, read_fs: ReadFs, root: str) -> None:
        file = read_fs.open_read(f"{root}/a/file")
        wrong: list[int] = []

        def read(start: int) -> None:
            wrong.extend(start for _ in range(200) if file.read_at(start, 7) != self.CONTENT[start : start + 7])

        threads = [threading.Thread(target=read, args=(start,)) for start in (0, 20, 40, 60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_lists_names_in_order(self, read_fs: ReadFs, root: str) -> None:
        assert read_fs.list(f"{root}/a") == ["file", "folder"]
        assert read_fs.list(f"{root}/a/folder") == []

    def test_knows_what_exists(self, read_fs: ReadFs, root: str) -> None:
        assert read_fs.exists(f"{root}/a/file")
        assert read_fs.exists(f"{root}/a/folder")
        assert not read_fs.exists(f"{root}/a/nothing")
        assert not read_fs.exists(f"{root}/nothing/file")

    def test_a_missing_file_is_not_found(self, read_fs: ReadFs, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            read_fs.open_read(f"{root}/a/nothing")
        with pytest.raises(FileNotFoundError):
            read_fs.list(f"{root}/nothing")

    def test_a_file_is_no_folder(self, read_fs: ReadFs, root: str) -> None:
        with pytest.raises(OSError, match="irectory"):
            read_fs.list(f"{root}/a/file")

    def test_a_folder_is_no_file(self, read_fs: ReadFs, root: str) -> None:
        with pytest.raises(OSError, match="irectory"):
            read_fs.open_read(f"{root}/a/folder").read_at(0, 1)


class WriteContract(ReadContract):
    """For every `Fs`."""

    @pytest.fixture
    def fs(self) -> Fs:
        raise AssertionError

    @pytest.fixture
    def read_fs(self, fs: Fs, root: str) -> ReadFs:
        fs.make_dir(f"{root}/a/folder")
        write(fs, f"{root}/a/file", self.CONTENT)
        return fs

    def test_appends(self, fs: Fs, root: str) -> None:
        file = fs.open(f"{root}/new", create=True)
        assert file.size == 0
        for part in (b"one", bytearray(b"two"), memoryview(b"three")):
            file.append(part)
        assert file.size == 11
        assert file.read_at(0, 100) == b"onetwothree"

    def test_opens_what_is_there_at_its_end(self, fs: Fs, root: str) -> None:
        write(fs, f"{root}/new", b"one")
        file = fs.open(f"{root}/new")
        assert file.size == 3
        file.append(b"two")
        assert content(fs, f"{root}/new") == b"onetwo"
        assert fs.open(f"{root}/new", create=True).size == 6

    def test_opens_nothing_that_is_not_there(self, fs: Fs, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            fs.open(f"{root}/new")
        with pytest.raises(FileNotFoundError):
            fs.open(f"{root}/nowhere/new", create=True)

    def test_cuts(self, fs: Fs, root: str) -> None:
        write(fs, f"{root}/new", b"0123456789")
        file = fs.open(f"{root}/new")
        file.truncate(4)
        assert file.size == 4
        file.append(b"ab")
        file.flush()
        assert content(fs, f"{root}/new") == b"0123ab"

    def test_an_open_file_sees_what_another_wrote(self, fs: Fs, root: str) -> None:
        write(fs, f"{root}/new", b"one")
        reader = fs.open_read(f"{root}/new")
        fs.open(f"{root}/new").append(b"two")
        assert reader.read_at(0, 100) == b"onetwo"

    def test_renames_a_file_over_another(self, fs: Fs, root: str) -> None:
        write(fs, f"{root}/old", b"old")
        write(fs, f"{root}/new", b"new")
        fs.rename(f"{root}/new", f"{root}/old")
        assert fs.list(root) == ["old"]
        assert content(fs, f"{root}/old") == b"new"

    def test_renames_a_folder_with_what_is_in_it(self, fs: Fs, root: str) -> None:
        fs.make_dir(f"{root}/a/b")
        write(fs, f"{root}/a/b/file", b"1")
        fs.rename(f"{root}/a", f"{root}/z")
        assert fs.list(root) == ["z"]
        assert content(fs, f"{root}/z/b/file") == b"1"

    def test_renames_nothing_that_is_not_there(self, fs: Fs, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            fs.rename(f"{root}/nothing", f"{root}/new")

    def test_an_open_file_outlives_its_name(self, fs: Fs, root: str) -> None:
        write(fs, f"{root}/new", b"one")
        reader = fs.open_read(f"{root}/new")
        fs.rename(f"{root}/new", f"{root}/new.deleted")
        assert reader.read_at(0, 3) == b"one"
        fs.remove(f"{root}/new.deleted")
        assert reader.read_at(0, 3) == b"one"
        assert fs.list(root) == []

    def test_removes_only_files(self, fs: Fs, root: str) -> None:
        fs.make_dir(f"{root}/a")
        with pytest.raises(FileNotFoundError):
            fs.remove(f"{root}/nothing")
        with pytest.raises(OSError, match="irectory"):
            fs.remove(f"{root}/a")

    def test_makes_folders_and_those_above(self, fs: Fs, root: str) -> None:
        fs.make_dir(f"{root}/a/b/c")
        fs.make_dir(f"{root}/a/b/c")
        assert fs.list(f"{root}/a/b") == ["c"]

    def test_removes_a_folder_with_what_is_in_it(self, fs: Fs, root: str) -> None:
        fs.make_dir(f"{root}/a/b")
        write(fs, f"{root}/a/b/file", b"1")
        write(fs, f"{root}/a/file", b"1")
        fs.remove_dir(f"{root}/a")
        assert fs.list(root) == []
        with pytest.raises(FileNotFoundError):
            fs.remove_dir(f"{root}/a")

    def test_flushes_folders(self, fs: Fs, root: str) -> None:
        fs.flush_dir(root)
        with pytest.raises(FileNotFoundError):
            fs.flush_dir(f"{root}/nothing")

    def test_one_holds_a_lock(self, fs: Fs, root: str) -> None:
        with fs.lock(f"{root}/.lock"), pytest.raises(BlockingIOError), fs.lock(f"{root}/.lock"):
            pass
        with fs.lock(f"{root}/.lock"):
            pass

    def test_a_closed_file_cannot_be_used(self, fs: Fs, root: str) -> None:
        file = fs.open(f"{root}/new", create=True)
        file.close()
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.append(b"1")
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.read_at(0, 1)


class TestLocalFs(WriteContract):
    @pytest.fixture
    def fs(self) -> Fs:
        return LocalFs()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)

    def test_a_file_is_closed_with_its_last_reference(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"1")
        descriptor = LocalFs().open_read(f"{tmp_path}/file").fileno()
        assert LocalFs().open_read(f"{tmp_path}/file").fileno() == descriptor


class TestMemoryFs(WriteContract):
    @pytest.fixture
    def fs(self) -> Fs:
        return MemoryFs()

    @pytest.fixture
    def root(self, fs: Fs) -> str:
        fs.make_dir("/root")
        return "/root"


class TestArrowFs(ReadContract):
    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        (tmp_path / "a" / "folder").mkdir(parents=True)
        (tmp_path / "a" / "file").write_bytes(self.CONTENT)
        return str(tmp_path)

    @pytest.fixture
    def read_fs(self) -> ReadFs:
        return ArrowFs(pafs.LocalFileSystem())

    def test_is_named_by_a_uri(self, root: str) -> None:
        fs, path = ArrowFs.from_uri(f"file://{root}/a")
        assert fs.list(path) == ["file", "folder"]


class TestPowerCuts:
    """The promises of `MemoryFs` about a power cut."""

    SEEDS = range(200)

    def test_flushed_bytes_under_a_flushed_name_survive(self) -> None:
        for seed in self.SEEDS:
            fs = MemoryFs()
            fs.make_dir("/a")
            file = fs.open("/a/file", create=True)
            file.append(b"x" * 100)
            file.flush()
            fs.flush_dir("/")
            fs.flush_dir("/a")
            file.append(b"y" * 100)
            fs.rename("/a/file", "/a/new")
            left = fs.crash(random.Random(seed))
            (name,) = left.list("/a")
            assert content(left, f"/a/{name}")[:100] == b"x" * 100

    def test_bytes_that_were_not_flushed_may_be_lost_torn_or_zero(self) -> None:
        found = set()
        for seed in self.SEEDS:
            fs = MemoryFs()
            file = fs.open("/file", create=True)
            fs.flush_dir("/")
            file.append(b"12345678" * 4)
            left = content(fs.crash(random.Random(seed)), "/file")
            found.add(
                "lost" if not left else "whole" if left == b"12345678" * 4 else "zero" if not any(left) else "torn"
            )
        assert found == {"lost", "whole", "zero", "torn"}

    def test_names_that_were_not_flushed_may_be_lost(self) -> None:
        found = set()
        for seed in self.SEEDS:
            fs = MemoryFs()
            write(fs, "/old", b"old")
            fs.flush_dir("/")
            write(fs, "/new", b"new")
            fs.rename("/new", "/old")
            left = fs.crash(random.Random(seed))
            found.add(tuple(left.list("/")))
            assert content(left, "/old") in (b"old", b"new")
        assert found == {("old",), ("new", "old")}

    def test_the_power_goes_in_the_middle_of_a_change(self) -> None:
        sizes = set()
        for seed in self.SEEDS:
            fs = MemoryFs()
            file = fs.open("/file", create=True)
            file.append(b"1")
            fs.cut_power_after(1, random.Random(seed))
            file.append(b"2")
            with pytest.raises(PowerCut):
                file.append(b"3" * 10)
            with pytest.raises(PowerCut):
                fs.list("/")
            file_content = fs.crash(random.Random(seed))
            if file_content.exists("/file"):
                sizes.add(len(content(file_content, "/file")))
        assert {0, 2, 12} < sizes

    def test_a_dead_disk_answers_nothing(self) -> None:
        fs = MemoryFs()
        fs.make_dir("/a")
        fs.make_dir("/b")
        fs.fail_under("/a", errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            fs.list("/a")
        assert fs.list("/b") == []

    def test_a_full_disk_can_be_read_and_emptied(self) -> None:
        fs = MemoryFs()
        fs.make_dir("/a")
        write(fs, "/a/file", b"12")
        fs.fail_under("/a", errno.ENOSPC)
        file = fs.open("/a/file")
        with pytest.raises(OSError, match="No space left on device"):
            file.append(b"3456")
        assert content(fs, "/a/file") == b"1234"
        fs.remove("/a/file")
        fs.repair("/a")
        write(fs, "/a/file", b"1")


def write(fs: Fs, path: str, data: bytes) -> None:
    file = fs.open(path, create=True)
    file.append(data)
    file.flush()
    file.close()


def content(fs: ReadFs, path: str) -> bytes:
    file = fs.open_read(path)
    data = file.read_at(0, file.size)
    file.close()
    return data
