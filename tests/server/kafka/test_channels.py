"""A channel sends each byte once and in order, whatever a response consists of and however slowly the peer reads."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from pathlib import Path

import pytest

from sparklog.base.fs import File, LocalFs
from sparklog.log.disk import DiskGuard
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.channels import SMALL_BYTES, PlainChannel
from sparklog.server.kafka.page_cache import Frame
from sparklog.testing.memory_fs import MemoryFs
from support.patience import PATIENCE_S

FILE_BYTES = 3 << 20


class Owner:
    """The owner of a channel that only sends."""

    def __init__(self) -> None:
        self.is_sent = asyncio.Event()
        self.is_lost = False

    def buffer(self) -> memoryview:
        return memoryview(bytearray(1024))

    def received(self, size: int) -> None:
        raise AssertionError("nothing is sent to the channel")

    def end_of_input(self) -> None:
        """Nothing is received."""

    def progressed(self) -> None:
        """The deadline does not matter here."""

    def sent(self) -> None:
        self.is_sent.set()

    def lost(self) -> None:
        self.is_lost = True


def log_file(path: str, *, in_memory: bool = False) -> File:
    file = (MemoryFs() if in_memory else LocalFs()).open("log" if in_memory else path, create=True)
    file.append(random.Random(1).randbytes(FILE_BYTES))
    return file


def slice_of(file: File, position: int, size: int, *, has_data: bool) -> LogSlice:
    data = file.read_at(position, size) if has_data else b""
    return LogSlice(file, position, size, 0, DiskGuard("folder"), data=data)


def framed(*parts: bytes | LogSlice) -> Frame:
    size = sum(part.size if isinstance(part, LogSlice) else len(part) for part in parts)
    return (struct.pack(">i", size), *parts)


def random_frame(chance: random.Random, file: File) -> Frame:
    parts: list[bytes | LogSlice] = []
    for _ in range(chance.choice([0, 1, 3, 300])):
        parts.append(os.urandom(chance.choice([0, 1, 20])))
        size = chance.choice([1, 100, 10_000, 10_000, SMALL_BYTES - 1, SMALL_BYTES, 1 << 20])
        if len(parts) > 20:
            size = min(size, 10_000)
        is_held = size < SMALL_BYTES and chance.random() < 0.7
        parts.append(slice_of(file, chance.randrange(FILE_BYTES - size), size, has_data=is_held))
    return framed(*parts, os.urandom(chance.choice([0, 5])))


def content(frame: Frame) -> bytes:
    return b"".join(
        part.file.read_at(part.position, part.size) if isinstance(part, LogSlice) else part for part in frame
    )


async def read_slowly(peer: socket.socket, size: int, chance: random.Random) -> bytes:
    got = bytearray()
    loop = asyncio.get_running_loop()
    while len(got) < size:
        got += await loop.sock_recv(peer, chance.choice([100, 10_000, 1 << 20]))
    return bytes(got)


@pytest.mark.slow
@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("seed", range(8))
async def test_every_byte_arrives_once_and_in_order(tmp_path: Path, seed: int, in_memory: bool) -> None:
    chance, file, owner = random.Random(seed), log_file(str(tmp_path / "log"), in_memory=in_memory), Owner()
    ours, peer = socket.socketpair()
    for each in (ours, peer):
        each.setblocking(False)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    channel = PlainChannel(asyncio.get_running_loop(), ours, owner)
    for _ in range(20):
        frames = [random_frame(chance, file) for _ in range(chance.choice([1, 4]))]
        wanted = b"".join(map(content, frames))
        reading = asyncio.create_task(read_slowly(peer, len(wanted), chance))
        owner.is_sent.clear()
        if len(frames) > 1:
            channel.cork()
        is_sent = True
        for frame in frames:
            if not is_sent:
                await asyncio.wait_for(owner.is_sent.wait(), PATIENCE_S)
                owner.is_sent.clear()
            is_sent = channel.send(frame)
        if len(frames) > 1 and not channel.uncork():
            is_sent = False
        assert await asyncio.wait_for(reading, PATIENCE_S) == wanted
        if not is_sent:
            await asyncio.wait_for(owner.is_sent.wait(), PATIENCE_S)
    channel.close()
    peer.close()
    assert owner.is_lost


async def test_a_response_that_the_peer_does_not_read_holds_no_bytes_of_the_log(tmp_path: Path) -> None:
    file, owner = log_file(str(tmp_path / "log")), Owner()
    ours, peer = socket.socketpair()
    for each in (ours, peer):
        each.setblocking(False)
    channel = PlainChannel(asyncio.get_running_loop(), ours, owner)
    slices = [slice_of(file, 10_000 * number, 10_000, has_data=True) for number in range(100)]
    frame = framed(*slices)
    wanted = content(frame)
    assert not channel.send(frame)
    assert not any(each.data for each in slices[-50:])  # the socket took fewer than half
    assert await read_slowly(peer, len(wanted), random.Random(1)) == wanted
    await asyncio.wait_for(owner.is_sent.wait(), PATIENCE_S)
    channel.close()
    peer.close()
