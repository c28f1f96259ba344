"""Log directories for audits: three replicas of one, and faults to plant in them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import (
    COMPACTED,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    MetaProperties,
    OffsetCheckpoint,
)
from sparklog.records.batch import iterate_headers, seal
from support import GOLDEN

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def directory(path: Path, broker: int, ends: Mapping[str, int], *, compacted: Mapping[str, int] | None = None) -> Path:
    """A log directory of a broker with copies of golden folders, each committed up to its end."""
    path.mkdir()
    for name in ends:
        shutil.copytree(GOLDEN / name, path / name)
        for dump in (path / name).glob("*.dump"):
            dump.unlink()
    meta = MetaProperties(broker_id=broker, cluster_id=CLUSTER, directory_id=MetaProperties.new_directory_id())
    meta.write(LocalFs(), str(path))
    remember(path, HIGH_WATERMARKS, ends)
    remember(path, RECOVERY_POINTS, ends)
    if compacted:
        remember(path, COMPACTED, compacted)
    return path


def remember(path: Path, checkpoint: str, offsets: Mapping[str, int]) -> None:
    named = {TopicPartition.parse(name): offset for name, offset in offsets.items()}
    OffsetCheckpoint(LocalFs(), f"{path}/{checkpoint}").write(named)


def log_of(folder: Path, base_offset: int = 0, suffix: str = ".log") -> Path:
    return folder / f"{base_offset:020d}{suffix}"


def places(log: Path) -> list[tuple[int, int]]:
    """Position and size of each batch."""
    return [(position, header.size) for position, header in iterate_headers(log.read_bytes())]


def flip(file: Path, position: int, bit: int = 1) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= bit
    file.write_bytes(data)


def cut_out(log: Path, batch: int) -> None:
    """A batch goes, and the indexes know nothing of what was behind it, as if they had been built again."""
    position, size = places(log)[batch]
    data = log.read_bytes()
    log.write_bytes(data[:position] + data[position + size :])
    log.with_suffix(".index").write_bytes(b"")
    log.with_suffix(".timeindex").write_bytes(b"")


def rewrite(log: Path, batch: int, *, epoch: int | None = None) -> None:
    """Another batch with the same offsets: one bit of a record is another, and the CRC is right."""
    position, size = places(log)[batch]
    data = bytearray(log.read_bytes())
    part = data[position : position + size]
    part[-5] ^= 1
    if epoch is not None:
        part[12:16] = epoch.to_bytes(4, "big")
    seal(part)
    data[position : position + size] = part
    log.write_bytes(data)
