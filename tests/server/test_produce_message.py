"""ProduceRequests of gRPC that are parsed without their batches and Arrow are complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.errors import InvalidRequest
from sparklog.base.protobuf import bytes_field, varint
from sparklog.runtime import slices
from sparklog.server.grpc import produce_message
from sparklog.server.grpc.produce_message import copy_of, parse_produce
from sparklog.v1 import log_pb2, records_pb2

PARTITIONS = log_pb2.ProduceRequest.DESCRIPTOR.fields_by_name["partitions"].number
BATCHES = log_pb2.PartitionProduce.DESCRIPTOR.fields_by_name["batches"].number
PARTS = st.builds(
    log_pb2.PartitionProduce,
    topic=st.text(max_size=5),
    partition=st.none() | st.integers(0, 5),
    codec=st.integers(0, 4),
)
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        "batches": st.binary(max_size=40),
        "arrow": st.binary(max_size=40),
        "records": st.just(records_pb2.RecordList(records=[records_pb2.Record(value=b"v")])),
    },
)
UNKNOWN = st.sampled_from([b"", bytes_field(900, b"later"), varint(901 << 3) + b"\7", varint(BATCHES << 3) + b"\1"])


@pytest.fixture(autouse=True, scope="module")
def nothing_is_small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_message, "SMALL_BYTES", 0)
        yield


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Requests of other protobuf writers: with repeated payloads and unknown fields."""
    data = log_pb2.ProduceRequest(acks=draw(st.integers(0, 2)), transactional_id=draw(st.none() | st.text(max_size=5)))
    written = bytearray(data.SerializeToString())
    for part in draw(st.lists(PARTS, max_size=4)):
        content = part.SerializeToString() + draw(UNKNOWN)
        for payload in draw(st.lists(PAYLOADS, max_size=3)):
            content += log_pb2.PartitionProduce(**payload).SerializeToString()
        written += bytes_field(PARTITIONS, content) + draw(UNKNOWN)
    return bytes(written)


@pytest.mark.slow
@given(requests())
def test_a_request_without_its_payloads_says_what_it_said_with_them(data: bytes) -> None:
    expected, found = log_pb2.ProduceRequest.FromString(data), parse_produce(data)
    assert [without_payload(part) for part in found.request.partitions] == [
        without_payload(part) for part in expected.partitions
    ]
    for part, wanted in zip(found.request.partitions, expected.partitions, strict=True):
        assert bytes(found.payload_of(part)) == (wanted.batches or wanted.arrow)
    for message in (found.request, expected):
        message.ClearField("partitions")
    assert found.request == expected


def without_payload(part: Any) -> tuple[str | None, bytes]:
    """The payload, and the part without it."""
    rest, kind = log_pb2.PartitionProduce(), part.WhichOneof("payload")
    rest.CopyFrom(part)
    if kind in ("batches", "arrow"):
        rest.ClearField(kind)
    return kind, rest.SerializeToString(deterministic=True)


def test_a_payload_is_in_the_bytes_of_its_request() -> None:
    part = log_pb2.PartitionProduce(topic="t", partition=0, batches=bytes(1_000))
    data = log_pb2.ProduceRequest(partitions=[part]).SerializeToString()
    found = parse_produce(data)
    payload = found.payload_of(found.request.partitions[0])
    assert isinstance(payload, memoryview)
    assert payload.obj is data
    assert found.request.ByteSize() < 100


@pytest.mark.slow
@given(requests(), st.data())
def test_a_request_that_is_cut_off_is_refused_or_says_what_it_would_with_its_payloads(
    data: bytes, choose: st.DataObject
) -> None:
    cut = data[: choose.draw(st.integers(0, len(data)))]
    try:
        expected = len(log_pb2.ProduceRequest.FromString(cut).partitions)
    except DecodeError:
        with pytest.raises(InvalidRequest):
            parse_produce(cut)
    else:
        assert len(parse_produce(cut).request.partitions) == expected


async def test_a_large_payload_is_copied_while_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    monkeypatch.setattr(produce_message, "COPIED_TOGETHER", 1_000)
    turns = 0

    class Counted(slices.Slices):
        async def give_way(self) -> None:
            nonlocal turns
            turns += 1
            await super().give_way()

    payload = bytes(range(250)) * 41
    copy = await copy_of(memoryview(payload), Counted())
    assert copy == payload
    assert turns == 11  # of 10,250 bytes, after each thousand and after the rest
