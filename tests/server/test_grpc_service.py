"""Parsing of requests: invalid messages and messages that grow in memory are refused."""

from __future__ import annotations

import resource
from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.errors import InvalidRequest, RecordListTooLarge
from sparklog.server.grpc import service
from sparklog.server.grpc.service import MAX_FIELDS_BYTES, parse
from sparklog.v1 import admin_pb2, log_pb2


def request(**payload) -> log_pb2.ProduceRequest:
    part = log_pb2.PartitionProduce(topic="t", partition=-1, current_leader_epoch=2**31 - 1, **payload)
    return log_pb2.ProduceRequest(acks="LEADER", timeout_ms=-5, partitions=[part, part], correlation_id=2**63 - 1)


def memory_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(
    "payload", [{"batches": b"b" * 100}, {"arrow": b"a" * 100}, {"records": {"records": [{}]}}, {}]
)
@pytest.mark.parametrize("limit", [MAX_FIELDS_BYTES, 200])
def test_a_request_is_parsed_as_it_was_sent(limit: int, payload: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_FIELDS_BYTES", limit)
    monkeypatch.setattr(service, "SMALL_BYTES", limit // 2)
    sent = request(**payload)
    assert parse(log_pb2.ProduceRequest, sent.SerializeToString()) == sent


def test_fields_are_counted_without_what_may_be_large() -> None:
    assert service._fields_bytes(request(batches=b"b" * 100).SerializeToString()) < 80
    assert service._fields_bytes(request(records={"records": [{"value": b"v" * 100}]}).SerializeToString()) > 200


def test_batches_and_arrow_may_be_large() -> None:
    sent = request(batches=bytes(MAX_FIELDS_BYTES))
    assert parse(log_pb2.ProduceRequest, sent.SerializeToString()) == sent


EMPTY = b"\x0a\x00" * 5_000_000
LENGTH = b"\x80\xad\xe2\x04"  # 10,000,000
HOSTILE = {
    "five million empty records": b"\x1a\x85\xad\xe2\x04" + b"\x22" + LENGTH + EMPTY,
    "five million empty partitions": b"\x1a\x00" * 5_000_000,
    "five million unknown fields": b"\x78\x00" * 5_000_000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_would_grow_is_refused_before_it_does(case: str) -> None:
    before = memory_kib()
    with pytest.raises(RecordListTooLarge, match=f"at most {MAX_FIELDS_BYTES} are taken"):
        parse(log_pb2.ProduceRequest, HOSTILE[case])
    assert memory_kib() - before < 30 * 1024


def test_every_other_request_is_small() -> None:
    with pytest.raises(RecordListTooLarge, match="are taken at once"):
        parse(log_pb2.FetchRequest, b"\x2a\x00" * (MAX_FIELDS_BYTES // 2 + 1))
    with pytest.raises(RecordListTooLarge, match="are taken at once"):
        parse(admin_pb2.DeleteTopicsRequest, b"\x0a\x00" * (MAX_FIELDS_BYTES // 2 + 1))


@st.composite
def damaged_requests(draw: st.DrawFn) -> bytes:
    """A request with up to two changed bytes, valid or not."""
    payload = draw(st.sampled_from([{"batches": b"b" * 9}, {"records": {"records": [{"value": b"v"}]}}, {}]))
    data = bytearray(request(**payload).SerializeToString())
    for at in draw(st.lists(st.integers(0, len(data) - 1), max_size=2)):
        data[at] = draw(st.integers(0, 255))
    return bytes(data)


@pytest.mark.slow
@given(st.binary(max_size=60) | damaged_requests())
@settings(max_examples=300)
def test_bytes_are_the_request_that_protobuf_reads_or_refused_where_it_refuses(data: bytes) -> None:
    try:
        expected = log_pb2.ProduceRequest.FromString(data)
    except DecodeError:
        with pytest.raises(InvalidRequest):
            parse(log_pb2.ProduceRequest, data)
    else:
        assert parse(log_pb2.ProduceRequest, data) == expected


@pytest.mark.slow
@given(st.binary(max_size=60) | damaged_requests())
@settings(max_examples=300)
def test_bytes_that_protobuf_reads_are_counted(data: bytes) -> None:
    try:
        log_pb2.ProduceRequest.FromString(data)
        counted = service._fields_bytes(data)
    except DecodeError:
        return
    except InvalidRequest as refusal:
        # Groups, which version 3 of protobuf does not have, are the one thing that only protobuf passes over.
        is_group = "wire type 3" in str(refusal)
        assert is_group, data
    else:
        assert 0 <= counted <= len(data)


@pytest.mark.slow
@given(st.binary(max_size=60) | damaged_requests())
@settings(max_examples=300)
def test_any_bytes_are_counted_or_refused(data: bytes) -> None:
    with suppress(InvalidRequest):
        assert 0 <= service._fields_bytes(data) <= len(data)
