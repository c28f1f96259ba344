"""Hostile bytes are never read wrongly or out of bounds, and never cost more memory than stated.

Compiled code checks nothing by itself, so these tests check from outside. The data lies at the end of a page with a
forbidden page behind it: a read of one byte too many kills the process. Every array that the kernels write lies between
bytes of a known pattern. The plain reader, which is independent of the kernels, must accept the same data and return
the same records.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparklog.base.errors import CorruptRecord, InvalidRecord, KafkaError, RecordListTooLarge
from sparklog.records import arrow, decoding, encoding, rewriting
from sparklog.records.batch import Codec, check_batch, read_header, seal
from sparklog.records.compression import compress
from sparklog.records.records import Record, iterate_records, read_records, write_records
from sparklog.records.rewriting import Rewriter
from support.record_values import MAX_INT, batch_of, framed, to_rows, varint
from support.runs.seeds import seeds

GOOD = [
    Record(offset=0, timestamp_ms=1000, key=b"key", value=b"value", headers=(("h", b"1"), ("h", None), ("", b""))),
    Record(offset=1, timestamp_ms=999, key=None, value=None),
    Record(offset=3, timestamp_ms=2**40, key=b"", value=b"x" * 200, headers=(("é" * 40, b"y" * 70),)),
]
MIB = 1024 * 1024
PATTERN = 0xA5
MARGIN = 64


class GuardedNumpy:
    """numpy, but arrays from `empty` and `zeros` lie between bytes of a pattern."""

    def __init__(self) -> None:
        self.blocks: list[tuple[np.ndarray, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any = float) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        block = np.full(size + 2 * MARGIN, PATTERN, np.uint8)
        self.blocks.append((block, size))
        return block[MARGIN : MARGIN + size].view(dtype).reshape(shape)

    def zeros(self, shape: Any, dtype: Any = float) -> np.ndarray:
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def check(self) -> None:
        for block, size in self.blocks:
            assert (block[:MARGIN] == PATTERN).all(), "written before an array"
            assert (block[MARGIN + size :] == PATTERN).all(), "written behind an array"
        self.blocks.clear()


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> GuardedNumpy:
    numpy = GuardedNumpy()
    monkeypatch.setattr(decoding, "np", numpy)
    return numpy


@pytest.fixture(scope="module")
def at_the_edge() -> Iterator[Callable[[bytes], memoryview]]:
    """Puts bytes at the very end of memory that may be read."""
    pages = mmap.mmap(-1, 64 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    edge = 63 * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + edge), mmap.PAGESIZE, 0) == 0

    def place(data: bytes) -> memoryview:
        view = memoryview(pages)[edge - len(data) : edge]
        view[:] = data
        return view

    yield place
    assert libc.mprotect(ctypes.c_void_p(start + edge), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def plain(data: bytes) -> list[Record] | None:
    """The records of one batch by the plain reader; None if it refuses the batch."""
    try:
        records = read_records(data)
    except KafkaError:
        return None
    return [] if read_header(data).is_control else records


def compiled(data: bytes | memoryview) -> pa.RecordBatch | None:
    try:
        batch = arrow.decode(data, offset_from=-(2**63))
    except KafkaError:
        return None
    batch.validate(full=True)
    return batch


def check_readers_agree(data: bytes, view: memoryview) -> None:
    expected, decoded = plain(data), compiled(view)
    if expected is None:
        assert decoded is None
    else:
        assert decoded is not None
        assert decoded.equals(to_rows(expected))
    for columns in (["key"], ["value"], ["headers"], ["timestamp"]):
        try:
            part = arrow.decode(view, columns=columns, offset_from=-(2**63))
        except KafkaError:
            assert expected is None  # a reader of a part must not refuse a batch that is right as a whole
        else:
            assert expected is None or part.equals(to_rows(expected).select(columns))


# Bytes outside the CRC: base offset and leader epoch. A broker overwrites them, and a reader cannot check them.
OUTSIDE_CRC = {*range(8), *range(12, 16)}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_every_flipped_bit_of_a_batch_is_refused_or_outside_the_crc(codec: Codec) -> None:
    batch = bytes(write_records(GOOD, codec=codec))
    expected = arrow.decode(batch)
    content = ["timestamp", "timestampType", "key", "value", "headers"]
    for position in range(len(batch)):
        for bit in range(8):
            damaged = bytearray(batch)
            damaged[position] ^= 1 << bit
            check_damaged(damaged, position, expected.select(content), content)


@pytest.mark.soak_only
def test_every_changed_byte_of_a_batch_is_refused_or_outside_the_crc() -> None:
    batch = bytes(write_records(GOOD))
    expected = arrow.decode(batch)
    content = ["timestamp", "timestampType", "key", "value", "headers"]
    for position in range(len(batch)):
        for value in range(256):
            if value != batch[position]:
                damaged = bytearray(batch)
                damaged[position] = value
                check_damaged(damaged, position, expected.select(content), content)


def check_damaged(damaged: bytearray, position: int, expected: pa.RecordBatch, content: list[str]) -> None:
    try:
        decoded = arrow.decode(damaged, offset_from=-(2**63))
    except CorruptRecord:
        assert position not in OUTSIDE_CRC
        return
    if position in OUTSIDE_CRC:
        assert decoded.select(content).equals(expected)
        with_place = check_batch(damaged)
        assert decoded.column("offset").to_pylist() == [with_place.base_offset + delta for delta in (0, 1, 3)]
    else:
        assert position in range(8, 12)  # a length greater than what is there: a batch that is cut off
        assert decoded.num_rows == 0


def mutated(batch: bytes, rng: random.Random) -> bytes:
    """The batch with some bytes of its records changed, removed, repeated or inserted, and its length and CRC right
    again.
    """
    body = bytearray(batch[61:])
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        position = rng.randrange(len(body) + 1)
        match rng.randrange(6):
            case 0:
                body[position:position] = rng.choice(NUMBERS)
            case 1:
                del body[position : position + rng.choice([1, 1, 2, 10])]
            case 2:
                body[position : position + 1] = rng.choice(NUMBERS)
            case 3:
                body[position:position] = body[position : position + rng.randrange(1, 30)]
            case _ if position < len(body):
                body[position] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    header = bytearray(batch[:61])
    header[8:12] = struct.pack(">i", 49 + len(body))
    if rng.random() < 0.3:
        header[57:61] = struct.pack(">i", rng.choice([0, 1, 2, 4, 100, MAX_INT, -1, -(2**31)]))
    if rng.random() < 0.2:
        header[23:27] = struct.pack(">i", rng.choice([0, 1, 2, 3, 100, MAX_INT, -1, -(2**31)]))
    if rng.random() < 0.2:
        header[21:23] = struct.pack(">h", rng.choice([0, 8, 16, 0x40, 0x48, 7]))
    if rng.random() < 0.1:
        header[27:35] = struct.pack(">q", rng.choice([-1, 0, 2**63 - 1, -(2**63)]))
    changed = header + body
    seal(changed)
    return bytes(changed)


# Lengths and deltas at their edges, and numbers that are too long.
NUMBERS = [
    varint(n) for n in (0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
]
NUMBERS += [
    b"\x80\x00",
    b"\x80\x80\x80\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",
    b"\x80" * 9 + b"\x01",
]
NUMBERS += [b"\x80" * 9 + b"\x02", b"\xff" * 10, b"\xff" * 20]


def fuzz(seed: int, rounds: int, guarded: GuardedNumpy, place: Callable[[bytes], memoryview]) -> None:
    rng = random.Random(seed)
    batch = bytes(write_records(GOOD))
    accepted = 0
    for _ in range(rounds):
        data = mutated(batch, rng)
        check_readers_agree(data, place(data))
        guarded.check()
        accepted += plain(data) is not None
    assert 0 < accepted < rounds  # both ways are tried


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(1, soak=20))
def test_readers_agree_on_mutated_records(
    seed: int, guarded: GuardedNumpy, at_the_edge: Callable[[bytes], memoryview]
) -> None:
    fuzz(seed, 500, guarded, at_the_edge)


def test_several_mutated_batches_at_once_stay_in_bounds(
    guarded: GuardedNumpy, at_the_edge: Callable[[bytes], memoryview]
) -> None:
    rng = random.Random(3)
    batch = bytes(write_records(GOOD))
    for _ in range(200):
        parts = [mutated(batch, rng) if rng.random() < 0.2 else batch for _ in range(rng.randrange(1, 6))]
        decoded = compiled(at_the_edge(b"".join(parts)))
        guarded.check()
        expected = [plain(part) for part in parts]
        if decoded is not None:
            assert decoded.num_rows == sum(len(records or ()) for records in expected)
        else:
            assert None in expected


@pytest.mark.slow
def test_random_bytes_stay_in_bounds(guarded: GuardedNumpy, at_the_edge: Callable[[bytes], memoryview]) -> None:
    rng = random.Random(4)
    for _ in range(300):
        data = bytearray(rng.randbytes(rng.randrange(200)))
        if len(data) > 16:
            data[16] = rng.choice([0, 1, 2, 2, 2, 3])
            data[8:12] = struct.pack(">i", rng.choice([0, -1, 10, 49, len(data) - 12, MAX_INT]))
        compiled(at_the_edge(bytes(data)))
        guarded.check()


HEAD = b"\0\0\0"  # attributes, timestamp delta, offset delta


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "a record's length"),
        (varint(-1), "a record's length"),
        (varint(0), "a record's length"),
        (varint(MAX_INT), "a record's length"),
        (varint(2**31), "a record's length"),
        (b"\x80" * 5 + b"\x00", "a record's length"),
        (framed(b"\0"), "a timestamp or offset delta"),
        (framed(b"\0" + b"\x80" * 10 + b"\0"), "a timestamp or offset delta"),
        (framed(b"\0" + b"\xff" * 9 + b"\x02\0\1\1\0"), "a timestamp or offset delta"),
        (framed(b"\0\0" + varint(2**31)), "a timestamp or offset delta"),
        (framed(b"\0\0" + varint(1) + b"\1\1\0"), "offsets do not increase"),
        (framed(b"\0\0" + varint(-1) + b"\1\1\0"), "offsets do not increase"),
        (framed(HEAD + varint(100) + b"\1\0"), "a key or value leaves"),
        (framed(HEAD + varint(MAX_INT) + b"\1\0"), "a key or value leaves"),
        (framed(HEAD + b"\1" + varint(5) + b"\0"), "a key or value leaves"),
        (framed(HEAD + b"\1"), "a key or value leaves"),
        (framed(HEAD + b"\1\1" + varint(-1)), "headers leave"),
        (framed(HEAD + b"\1\1" + varint(MAX_INT)), "headers leave"),
        (framed(HEAD + b"\1\1" + varint(1) + b"\1\1"), "headers leave"),
        (framed(HEAD + b"\1\1" + varint(1) + varint(9) + b"\1"), "headers leave"),
        (framed(HEAD + b"\1\1" + varint(2) + b"\0\1"), "headers leave"),
        (framed(HEAD + b"\1\1\0\0"), "longer than its fields"),
        (framed(HEAD + b"\1\1\0") * 2, "fewer records"),
        # numbers that the end of the data cuts off
        (b"\x80", "a record's length"),
        (framed(b"\0\x80"), "a timestamp or offset delta"),
        (framed(b"\0\0\x80"), "a timestamp or offset delta"),
        (framed(HEAD + b"\x80"), "a key or value leaves"),
        (framed(HEAD + b"\1\x80"), "a key or value leaves"),
        (framed(HEAD + b"\1\1\x80"), "headers leave"),
        (framed(HEAD + b"\1\1\2\x80\x80"), "headers leave"),
        (framed(HEAD + b"\1\1\2\0\x80"), "headers leave"),
    ],
)
def test_an_invalid_record_is_refused_with_its_fault(
    body: bytes, reason: str, guarded: GuardedNumpy, at_the_edge: Callable[[bytes], memoryview]
) -> None:
    data = batch_of(body, count=1)
    assert plain(data) is None
    with pytest.raises(CorruptRecord, match=f"batch at offset 0, position 0: .*{reason}"):
        arrow.decode(at_the_edge(data))
    guarded.check()


@pytest.mark.parametrize("columns", [["key"], ["value"], ["headers"], ["offset", "key"]])
def test_a_key_that_leaves_its_record_is_refused_in_any_choice_of_columns(columns: list[str]) -> None:
    data = batch_of(framed(b"\0" + varint(2**40) + b"\0" + varint(1)) + framed(b"\0\0\2\1\1\0"), count=2)
    with pytest.raises(CorruptRecord, match="a key or value leaves"):
        arrow.decode(data, columns=columns)


def test_records_too_small_for_a_key_are_refused_even_if_it_is_not_read(guarded: GuardedNumpy) -> None:
    data = batch_of(b"".join(framed(b"\0\0" + varint(delta)) for delta in range(60)), count=60)
    with pytest.raises(CorruptRecord, match="more records than its bytes can hold"):
        arrow.decode(data, columns=["timestamp"])
    guarded.check()


def test_any_negative_length_is_null_as_in_kafka() -> None:
    data = batch_of(framed(HEAD + varint(-5) + varint(-(2**31)) + varint(1) + varint(1) + b"h" + varint(-7)), count=1)
    assert arrow.decode(data).to_pylist()[0]["headers"] == [{"key": "h", "value": None}]
    assert plain(data) == [Record(offset=0, timestamp_ms=0, headers=(("h", None),))]


@pytest.mark.parametrize("count", [-1, -(2**31), 2, 1000, MAX_INT])
def test_a_wrong_count_is_refused_without_room_being_made_for_it(count: int) -> None:
    body = framed(HEAD + b"\1\1\0")
    for codec in (Codec.NONE, Codec.ZSTD):
        data = batch_of(compress(codec, body), count=count, last_delta=MAX_INT, attributes=codec)
        assert peak_of(lambda data=data: arrow.decode(data)) < MIB
        with pytest.raises(CorruptRecord):
            arrow.decode(data)


def test_offsets_alone_are_not_believed_either() -> None:
    data = batch_of(b"", count=MAX_INT, attributes=Codec.ZSTD)
    with pytest.raises(CorruptRecord, match="claims 2147483647 records"):
        arrow.decode(data, columns=["offset"])
    assert peak_of(lambda: arrow.decode(data, columns=["offset"])) < MIB


def test_a_bomb_of_records_costs_what_is_stated() -> None:
    limit = 8 * MIB
    smallest = framed(HEAD + b"\1\1\0")
    for count in (200_000, 1_000_000, 5_000_000):  # within the limits, too many rows, too many bytes
        body = smallest * count
        data = batch_of(compress(Codec.ZSTD, body), count=count, last_delta=MAX_INT, attributes=Codec.ZSTD)
        assert len(data) < 10_000
        del body
        for columns in (arrow.COLUMNS, ["offset"], ["key"]):
            assert peak_of(lambda data=data, columns=columns: decode_with(data, limit, columns)) < 5 * limit


def test_a_bomb_of_headers_costs_what_is_stated() -> None:
    limit = 8 * MIB
    for count in (400_000, 3_000_000):
        body = framed(HEAD + b"\1\1" + varint(count) + b"\0\1" * count)
        data = batch_of(compress(Codec.ZSTD, body), count=1, attributes=Codec.ZSTD)
        del body
        assert peak_of(lambda data=data: decode_with(data, limit)) < 5 * limit


@pytest.mark.slow
def test_many_bombs_cost_no_more_than_one() -> None:
    limit = 8 * MIB
    for size in (limit - 100, limit // 2 - 100, limit // 3):
        bomb = bytes(write_records([Record(offset=0, value=bytes(size))], codec=Codec.ZSTD))
        assert peak_of(lambda bomb=bomb: decode_with(bomb * 20, limit)) < 5 * limit
        assert peak_of(lambda bomb=bomb: list_lengths(bomb * 20, limit)) < 5 * limit


@pytest.mark.slow
def test_a_bomb_read_record_by_record_costs_what_it_decompresses_to() -> None:
    count = 20_000
    body = framed(HEAD + b"\1\1\0") + b"".join(framed(b"\0\0" + varint(i) + b"\1\1\0") for i in range(1, count))
    data = batch_of(compress(Codec.ZSTD, body), count=count, attributes=Codec.ZSTD)
    size = len(body)
    del body
    assert peak_of(lambda: sum(1 for _ in iterate_records(data))) < 3 * size


def decode_with(data: bytes, limit_bytes: int, columns: Sequence[str] = arrow.COLUMNS) -> pa.RecordBatch | None:
    with suppress(RecordListTooLarge):
        return arrow.decode(data, limit_bytes=limit_bytes, columns=columns)
    return None


def list_lengths(data: bytes, limit_bytes: int) -> int:
    return sum(batch.num_rows for batch in arrow.decode_batches(data, limit_bytes=limit_bytes))


def test_data_that_changes_while_it_is_read_is_not_written_out_of_bounds(
    guarded: GuardedNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = bytes(write_records(GOOD))
    rng = random.Random(5)
    original = decoding.kernels.parse_batches
    for _ in range(100):
        data = bytearray(batch)

        def parse_then_change(*arguments: Any, data: bytearray = data) -> Any:
            answer = original(*arguments)
            for position in range(61, len(data)):
                if rng.random() < 0.3:
                    data[position] = rng.choice([0, 2, 0x7E, 0x7F, 0x80, 0xFF])
            return answer

        monkeypatch.setattr(decoding.kernels, "parse_batches", parse_then_change)
        with suppress(CorruptRecord):
            arrow.decode(data).validate()
        guarded.check()


def test_rows_that_change_while_they_are_written_are_refused_or_stay_in_bounds(
    guarded: GuardedNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "np", guarded)
    rng = random.Random(6)
    original = encoding.kernels.measure_batches
    for name in ("key", "value", "headers"):
        for _ in range(100):
            starts = np.arange(0, 40, 4, dtype=np.int32)
            buffers = [None, pa.py_buffer(starts)]
            if name == "headers":
                texts = [pa.array(["0123"] * 40, kind) for kind in (pa.string(), pa.binary())]
                entries = pa.StructArray.from_arrays(texts, ["key", "value"])
                column = pa.Array.from_buffers(arrow.HEADERS_TYPE, 9, buffers, children=[entries])
            else:
                column = pa.Array.from_buffers(pa.binary(), 9, [*buffers, pa.py_buffer(b"0123" * 10)])

            def measure_then_change(*arguments: Any, starts: np.ndarray = starts) -> Any:
                answer = original(*arguments)
                starts[rng.randrange(10)] = rng.choice([-1, -(2**31), 2**31 - 1, 0, 39, 41])
                return answer

            monkeypatch.setattr(encoding.kernels, "measure_batches", measure_then_change)
            rows = pa.RecordBatch.from_arrays([column], names=[name])
            with suppress(InvalidRecord):
                check_batch(arrow.encode(rows, default_timestamp_ms=0))
            guarded.check()


def rewrite(data: bytes | memoryview, kept: set[int]) -> bytes | None:
    """The compacted batch with these offsets kept; None if compaction refuses the batch."""
    offsets = np.array(sorted(kept), np.int64)
    try:
        return Rewriter(now_ms=1000, delete_retention_ms=10).rewrite(data, offsets)
    except KafkaError:
        return None


def fuzz_rewriting(seed: int, rounds: int, guarded: GuardedNumpy, place: Callable[[bytes], memoryview]) -> None:
    rng = random.Random(seed)
    batches = [bytes(write_records(GOOD, delete_horizon_ms=horizon)) for horizon in (None, 900, 2000)]
    accepted = 0
    for _ in range(rounds):
        data = mutated(rng.choice(batches), rng)
        view, records = place(data), plain(data)
        kept = {offset for offset in (0, 1, 3, 100) if rng.random() < 0.6}
        output = rewrite(view, kept)
        guarded.check()
        if output is None:
            assert records is None or read_header(data).is_transactional or read_header(data).is_control
            continue
        horizon = read_header(data).delete_horizon_ms
        if records is None or (output == data and horizon is not None and horizon > 1000):
            assert output in (b"", data)  # a batch of which nothing or everything is kept is not always looked into
        else:
            expired = horizon is not None and horizon <= 1000
            expected = [it for it in records if it.offset in kept and not (expired and it.value is None)]
            assert (read_records(output) if output else []) == expected
            accepted += 1
    assert 0 < accepted < rounds


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(1, soak=20))
def test_rewriting_of_mutated_batches_keeps_what_was_asked_or_refuses(
    seed: int, guarded: GuardedNumpy, at_the_edge: Callable[[bytes], memoryview], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "np", guarded)
    fuzz_rewriting(seed, 120, guarded, at_the_edge)


def test_a_batch_that_changes_while_it_is_rewritten_is_refused_or_stays_in_bounds(
    guarded: GuardedNumpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "np", guarded)
    batch = bytes(write_records(GOOD))
    rng = random.Random(8)
    original = rewriting.kernels.survey
    for _ in range(100):
        data = bytearray(batch)

        def survey_then_change(*arguments: Any, data: bytearray = data) -> Any:
            answer = original(*arguments)
            for position in range(61, len(data)):
                if rng.random() < 0.3:
                    data[position] = rng.choice([0, 2, 0x7E, 0x7F, 0x80, 0xFF])
            return answer

        monkeypatch.setattr(rewriting.kernels, "survey", survey_then_change)
        rewrite(memoryview(data), {0, 1})
        guarded.check()


def test_bombs_that_are_rewritten_cost_no_more_than_one() -> None:
    limit = 2 * MIB
    kept = np.zeros(1, np.int64)
    for size in (limit - 100, limit // 3):
        records = [Record(offset=0, value=bytes(size)), Record(offset=1)]
        bomb = bytes(write_records(records, codec=Codec.ZSTD))

        def rewrite_all(bomb: bytes = bomb) -> None:
            rewriter = Rewriter(now_ms=0, delete_retention_ms=0, limit_bytes=limit, group_bytes=limit)
            rewriter.rewrite(bomb * 20, kept)
            assert rewriter.result.records_kept == 20

        rewrite_all()  # loads the kernels, whose memory does not count
        assert peak_of(rewrite_all) < 5 * limit
    too_large = bytes(write_records([Record(offset=0, value=bytes(limit + 1))], codec=Codec.ZSTD))
    with pytest.raises(CorruptRecord, match="hold more than"):
        Rewriter(now_ms=0, delete_retention_ms=0, limit_bytes=limit).rewrite(too_large, kept)


def peak_of(call: Callable[[], Any]) -> int:
    """The peak memory of numpy and Python during `call`, whether it returns or raises."""
    tracemalloc.start()
    try:
        call()
    except CorruptRecord:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak
