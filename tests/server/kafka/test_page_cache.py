"""Slices outside the page cache are read before they are sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import LocalFs
from sparklog.log.disk import DiskGuard
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.page_cache import bring_in, is_cached
from sparklog.testing.memory_fs import MemoryFs

SIZE = 3 << 20


def slice_of(file, size: int = SIZE) -> LogSlice:
    return LogSlice(file=file, position=0, size=size, next_offset=0, disk=DiskGuard("folder"))


async def test_a_file_that_is_only_on_the_disk_is_read_into_memory(tmp_path: Path) -> None:
    file = LocalFs().open(str(tmp_path / "log"), create=True)
    file.append(os.urandom(SIZE))
    file.flush()
    found = slice_of(file)
    assert is_cached(found)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_cached(found):
        pytest.skip("this file system keeps everything in memory")
    await bring_in([b"head", found, b"tail"])
    assert is_cached(found)


async def test_files_in_memory_are_left_alone() -> None:
    file = MemoryFs().open("log", create=True)
    file.append(bytes(SIZE))
    assert is_cached(slice_of(file))
    await bring_in([slice_of(file)])


def test_a_disk_that_cannot_be_read_is_told_where_it_is_read(tmp_path: Path) -> None:
    file = LocalFs().open(str(tmp_path / "log"), create=True)
    file.append(bytes(10))
    file.close()
    assert is_cached(slice_of(file, 10))
    with pytest.raises(KafkaStorageError):
        slice_of(file, 10).read()
