"""Parsing of a ProduceRequest without copies of its batches and Arrow.

Protobuf copies each bytes field when it parses a message, and again when the field is read. For tens of megabytes, this
blocks the event loop for tens of milliseconds. So a request that is not small is parsed with a number of four bytes in
the place of each payload. The payloads are copied from the request once, a megabyte at a time.
"""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple

from sparklog.base.fs import Buffer
from sparklog.base.protobuf import bytes_field, fields_of
from sparklog.runtime.slices import Slices
from sparklog.server.grpc.service import PARTITIONS, PAYLOADS, SMALL_BYTES, has_large_fields, parse
from sparklog.v1 import log_pb2

COPIED_TOGETHER = 1 << 20
"""Bytes that are copied between two checks of the clock: less than a millisecond."""
_PLACE = struct.Struct("<I")


class ParsedProduce(NamedTuple):
    """A request, and the payloads that were taken out of it."""

    request: log_pb2.ProduceRequest
    payloads: list[memoryview] | None = None
    """None: the request still has its payloads."""

    def payload_of(self, part: log_pb2.PartitionProduce) -> Buffer:
        """Return the batches or Arrow of a partition of the request; empty if it has neither."""
        found: bytes = part.arrow if part.WhichOneof("payload") == "arrow" else part.batches
        return self.payloads[_PLACE.unpack(found)[0]] if self.payloads and found else found


async def read_produce(data: bytes) -> ParsedProduce:
    """Return the request in `data`; parse it in a thread if that may take long. Raises as `service.parse` does."""
    if has_large_fields(log_pb2.ProduceRequest, data):
        return ParsedProduce(await asyncio.to_thread(parse, log_pb2.ProduceRequest, data))
    return parse_produce(data)


def parse_produce(data: bytes) -> ParsedProduce:
    """Return the request in `data`, which must not have large fields. Raises as `service.parse` does."""
    if len(data) <= SMALL_BYTES:
        return ParsedProduce(parse(log_pb2.ProduceRequest, data))
    payloads: list[memoryview] = []
    rest = bytearray()
    for field in fields_of(memoryview(data)):
        if field.number == PARTITIONS and field.has_length:
            rest += bytes_field(PARTITIONS, _without_payload(field.content, payloads))
        else:
            rest += field.whole
    return ParsedProduce(parse(log_pb2.ProduceRequest, bytes(rest)), payloads)


def _without_payload(part: memoryview, payloads: list[memoryview]) -> bytearray:
    """Return a PartitionProduce with numbers in the place of payloads, which are added to `payloads`."""
    rest = bytearray()
    for field in fields_of(part):
        if field.number in PAYLOADS and field.has_length:
            rest += bytes_field(field.number, _PLACE.pack(len(payloads)))
            payloads.append(field.content)
        else:
            rest += field.whole
    return rest


async def copy_of(payload: Buffer, slices: Slices) -> bytearray:
    """Return a copy that the broker may modify; a large payload is copied in slices."""
    if len(payload) <= COPIED_TOGETHER:
        return bytearray(payload)
    copy = bytearray()  # it grows without copies: the allocator remaps its pages
    view = memoryview(payload)

    async def add(position: int) -> None:
        nonlocal copy
        copy += view[position : position + COPIED_TOGETHER]

    await slices.each(range(0, len(view), COPIED_TOGETHER), add)
    return copy
