"""From a frame to the frame that answers it: header, translation, response.

A request that cannot be understood at all (a torn header, an API or a version that is not served, a body that is not
that version's) ends its connection, as in Apache Kafka: where a frame is not what it says, nothing after it can be
trusted. The one exception is ApiVersions in a version that is not known: it is answered in version 0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from sparklog.base.errors import InvalidRequest, KafkaError, UnsupportedVersion
from sparklog.broker.node import Broker
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.messages import make, read_request, response_type, write
from sparklog.server.kafka.translation import Answer, Call, Session

_BY_KEY = {translation.api.key: translation for translation in TRANSLATIONS}
_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
API_VERSIONS = 18
Frame = Sequence[bytes | LogSlice]


class Header(NamedTuple):
    """A request's header (RequestHeader.json), and where its body begins."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


async def answer(broker: Broker, session: Session, frame: bytes | memoryview) -> Frame:
    """The response to one request, its size in front; nothing where none is to be sent.

    Raises KafkaError where the connection is to be closed.
    """
    if session.opaque:
        token = await session.opaque(broker, session, bytes(frame))
        return (_SIZE.pack(len(token)) + token,)
    header = read_header(frame)
    if session.admit:
        session.admit(session, header.key)
    translation = _BY_KEY[header.key]
    first, last = translation.api.versions
    call = Call(
        broker=broker,
        session=session,
        key=header.key,
        version=header.version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
    )
    if not first <= header.version <= last:
        return _join(
            header, make(response_type(API_VERSIONS, 0), error_code=ErrorCode.unsupported_version, api_keys=())
        )
    body = memoryview(frame)[header.body_at :]
    if translation.read:
        request = translation.read(header.version, body)
    else:
        request = read_request(header.key, header.version, body.toreadonly())
    try:
        found = await translation.serve(call, request)
    except KafkaError as error:
        found = translation.refuse(call, request, error) if translation.refuse else _refused(call, error)
    return _join(header, found)


def read_header(frame: bytes | memoryview) -> Header:
    """Raises InvalidRequest, or UnsupportedVersion for an API or a version that is not served."""
    try:
        key, version, correlation_id, length = _HEADER.unpack_from(frame)
        end = _HEADER.size + max(0, length)
        client_id = None if length < 0 else bytes(frame[_HEADER.size : end]).decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidRequest(f"a request without a whole header: {error}") from None
    if end > len(frame):
        raise InvalidRequest("a request without a whole header")
    translation = _BY_KEY.get(key)
    if translation is None:
        raise UnsupportedVersion(f"API {key} is not served")
    first, last = translation.api.versions
    if not first <= version <= last and key != API_VERSIONS:
        raise UnsupportedVersion(f"{translation.api.name} is served in versions {first} to {last}, not {version}")
    if _is_flexible(key, version):
        end = _skip_tags(frame, end)
    return Header(key, version, correlation_id, client_id, end)


def _is_flexible(key: int, version: int) -> bool:
    first, last = _BY_KEY[key].api.versions
    return bool(response_type(key, min(max(first, version), last)).__flexible__)


def _skip_tags(frame: bytes | memoryview, at: int) -> int:
    """Where the header's tagged fields end; they are few and nobody sends any."""
    count, at = _varint(frame, at)
    for _ in range(count):
        _, at = _varint(frame, at)
        size, at = _varint(frame, at)
        at += size
        if at > len(frame):
            raise InvalidRequest("tagged fields longer than the request")
    return at


def _varint(frame: bytes | memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(frame):
            raise InvalidRequest("a request that ends in its header")
        value |= (frame[at] & 0x7F) << shift
        at += 1
        if frame[at - 1] < 0x80:
            return value, at
    raise InvalidRequest("a number of more than five bytes in the header")


def _refused(call: Call, error: KafkaError) -> Answer:
    """The response that says that a request as a whole was refused; raises the error where it has no place for it."""
    kind = response_type(call.key, call.version)
    if "error_code" not in kind.__dataclass_fields__:
        raise error
    return call.answer(error_code=error)


def _join(header: Header, found: Answer) -> Frame:
    """The frame: size, correlation id, tagged fields where the version has them, body."""
    if found is None:
        return ()
    body: Frame = found if isinstance(found, tuple | list) else (write(found),)
    tags = b"\0" if _is_flexible(header.key, header.version) and header.key != API_VERSIONS else b""
    size = 4 + len(tags) + sum(part.size if isinstance(part, LogSlice) else len(part) for part in body)
    return (_SIZE_AND_CORRELATION.pack(size, header.correlation_id) + tags, *body)
