"""Processing of a request frame into its response frame: header, translation, response.

A malformed request (an incomplete header, an API or version that is not served, a body that does not match its version)
ends its connection, as in Apache Kafka, because the next frame may be misread. The only exception is ApiVersions in an
unknown version, which is answered in version 0.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from time import time_ns
from typing import NamedTuple

from sparklog.base.errors import InvalidRequest, UnsupportedVersion
from sparklog.base.tracing import RequestTracing
from sparklog.broker.node import Broker
from sparklog.broker.sasl import API_VERSIONS, SASL_AUTHENTICATE
from sparklog.broker.slow_requests import SlowRequests
from sparklog.server.kafka.answer_cache import MAX_ANSWER_BYTES, CachedAnswer, CacheLookup
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.array_counts import SMALL_BYTES
from sparklog.server.kafka.messages import (
    LARGE_BYTES,
    Message,
    has_error,
    is_large,
    read_request,
    response_type,
    with_throttle_time,
    write,
)
from sparklog.server.kafka.packing import skip_tags
from sparklog.server.kafka.page_cache import Frame, bring_in
from sparklog.server.kafka.throttle import FETCH, ConnectionThrottle
from sparklog.server.kafka.translation import KafkaCall, Pieces, ResponseBody, Session, Translation
from sparklog.server.kafka.wide_requests import is_wide, serve_wide, without_duplicates

_BY_KEY = {translation.api.key: translation for translation in TRANSLATIONS}
_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
KNOWN_FORMATS = 1024
"""Cache size: several times the number of served versions. Limited because ApiVersions may come in any version."""
NO_RESPONSE: Frame = ()


class KafkaRequest(NamedTuple):
    """One decoded request."""

    translation: Translation
    call: KafkaCall
    message: Message
    """The decoded message. None for ApiVersions in an unknown version; bytes if the frame is a bare SASL token; the
    undecoded body as a memoryview if a thread must decode it, or if the answer is cached."""
    asked: CacheLookup | None = None
    """None: the answer is not cached."""


class _RequestFormat(NamedTuple):
    """Properties shared by all requests of one API and version."""

    translation: Translation
    is_known: bool
    has_tags: bool
    """Whether the request header has tagged fields."""
    is_cached: bool
    """Whether answers are cached."""
    read: Callable[[memoryview], Message]
    response_tags: bytes


def read_frame(broker: Broker, session: Session, frame: memoryview) -> KafkaRequest:
    """Return the request in a frame; a large body is not decoded yet.

    Raises KafkaError if the connection must be closed.
    """
    if session.opaque:
        return _bare_token_request(broker, session, bytes(frame))
    try:
        key, version, correlation_id, length = _HEADER.unpack_from(frame)
        end = _HEADER.size + max(0, length)
        client_id = None if length < 0 else str(frame[_HEADER.size : end], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidRequest(f"a request without a whole header: {error}") from None
    if end > len(frame):
        raise InvalidRequest("a request without a whole header")
    request_format = _format_of(key, version)
    if session.admit:
        session.admit(session, key)
    if request_format.has_tags:
        end = end + 1 if end < len(frame) and not frame[end] else skip_tags(frame, end)
    call = KafkaCall(
        broker=broker,
        session=session,
        key=key,
        version=version if request_format.is_known else 0,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    body = frame[end:]
    asked = None
    if request_format.is_cached and (answers := session.answers):
        asked = answers.ask(request_format.translation.api, version, session.subject, body)
        if asked and asked.answer:
            return KafkaRequest(request_format.translation, call, body, asked)
    is_large = len(body) > SMALL_BYTES and request_format.is_known and not request_format.translation.read
    return KafkaRequest(request_format.translation, call, body if is_large else request_format.read(body), asked)


async def answer(request: KafkaRequest) -> Frame:
    """Return the response frame, which begins with its size; empty if no response is sent.

    Raises KafkaError if the connection must be closed.
    """
    translation, call, message, asked = request
    throttle = call.session.throttle
    if asked and asked.answer and not (throttle and throttle.may_wait):
        return _cached_frame(call, translation, asked.answer)
    if message is None:
        return _join(call, (write(_unknown_version(call, translation)),))
    if type(message) is bytes and call.session.opaque:
        token = await call.session.opaque(call.broker, call.session, message)
        return (_SIZE.pack(len(token)) + token,)
    if type(message) is memoryview:
        found = await _respond_to_large(translation, call, message)
    elif translation.wide:
        found = await _respond(translation, call, message)
    else:
        found = await translation.respond(call, message)
    if found is None:
        return NO_RESPONSE
    if throttle and (throttle.may_wait or call.key == FETCH):
        found = _with_throttle_time(translation, call, throttle, found)
    if not isinstance(found, tuple | list):
        typed, found = found, (await _write_body(call, found),)
        if asked and not (throttle and throttle.may_wait):
            await _cache_answer(asked, request, typed, found[0])
    frame = _join(call, found)
    if len(frame) > 1:
        await bring_in(frame)
    return frame


def _cached_frame(call: KafkaCall, translation: Translation, answer: CachedAnswer) -> Frame:
    """Return the frame of a cached answer."""
    call.broker.metrics.requests[translation.api.name].observe(0.0)
    if translation.note_session:
        translation.note_session(call.session, answer.request)
    return (_SIZE_AND_CORRELATION.pack(4 + len(answer.data), call.correlation_id) + answer.data,)


async def _cache_answer(asked: CacheLookup, request: KafkaRequest, found: Message, body: bytes) -> None:
    """Cache an answer without errors. body: its bytes"""
    translation, call, message, _ = request
    if len(body) > MAX_ANSWER_BYTES or not translation.is_cached(message):
        return
    is_large = len(body) > LARGE_BYTES
    if not (await call.broker.slices.in_thread(partial(has_error, found)) if is_large else has_error(found)):
        tags = _format_of(call.key, call.version).response_tags
        asked.cache.keep(asked, tags + body, message if translation.note_session else None)


async def _respond_to_large(translation: Translation, call: KafkaCall, body: memoryview) -> ResponseBody:
    """Decode the request in a thread, and answer it."""
    async with call.broker.slices.few if translation.wide else nullcontext():
        message = await asyncio.to_thread(_format_of(call.key, call.version).read, body)
        return await _respond(translation, call, message)


async def _respond(translation: Translation, call: KafkaCall, message: Message) -> ResponseBody:
    if wide := translation.wide:
        if is_wide(wide, message):
            return await serve_wide(translation, call, message, wide)
        message = without_duplicates(wide, message)
    return await translation.respond(call, message)


def _with_throttle_time(
    translation: Translation, call: KafkaCall, throttle: ConnectionThrottle, found: Message | Pieces
) -> Message | Pieces:
    """Return the answer with the throttle time of the client."""
    if call.key == FETCH:
        throttle.fetched(_size_of(found))
        if not throttle.may_wait:
            return found
    if not isinstance(found, tuple | list):
        wait_ms = throttle.wait_ms()
        return with_throttle_time(found, wait_ms) if wait_ms else found
    if translation.throttled and (wait_ms := throttle.wait_ms()):
        return translation.throttled(found, wait_ms)
    return found


def _size_of(found: Pieces) -> int:
    size = 0
    for part in found:
        size += len(part) if isinstance(part, bytes) else part.size
    return size


def _bare_token_request(broker: Broker, session: Session, frame: bytes) -> KafkaRequest:
    """Return a request for a bare SASL token, served like the token of a SaslAuthenticate request."""
    call = KafkaCall(broker=broker, session=session, key=SASL_AUTHENTICATE, version=0, correlation_id=0, client_id=None)
    return KafkaRequest(_BY_KEY[SASL_AUTHENTICATE], call, frame)


@lru_cache(KNOWN_FORMATS)
def _format_of(key: int, version: int) -> _RequestFormat:
    """Return the format of an API and version. Raises UnsupportedVersion if it is not served."""
    translation = _BY_KEY.get(key)
    if translation is None:
        raise UnsupportedVersion(f"API {key} is not served")
    first, last = translation.api.versions
    is_known = first <= version <= last
    if not (is_known or key == API_VERSIONS):
        raise UnsupportedVersion(f"{translation.api.name} is served in versions {first} to {last}, not {version}")
    is_flexible = is_known and bool(response_type(key, version).__flexible__)
    return _RequestFormat(
        translation=translation,
        is_known=is_known,
        has_tags=is_flexible,
        is_cached=is_known and translation.api.cached_by is not None,
        read=_reader(translation, key, version) if is_known else _read_nothing,
        response_tags=b"\0" if is_flexible and key != API_VERSIONS else b"",
    )


def _reader(translation: Translation, key: int, version: int) -> Callable[[memoryview], Message]:
    if translation.read:
        return partial(translation.read, version)
    return partial(read_request, key, version, most=translation.most_elements)


def _read_nothing(_: memoryview) -> None:
    """Return None: the body of an unknown version cannot be decoded."""


def _unknown_version(call: KafkaCall, translation: Translation) -> Message:
    """Answer with the versions of ApiVersions, so that the client retries; as in Apache Kafka from 2.4 on (KIP-511)."""
    first, last = translation.api.versions
    return call.answer(
        error_code=UnsupportedVersion("ApiVersions in a version that is not known"),
        api_keys=[{"api_key": API_VERSIONS, "min_version": first, "max_version": last}],
    )


async def _write_body(call: KafkaCall, message: Message) -> bytes:
    """Return the bytes of a response body. A thread writes large messages."""
    return await call.broker.slices.in_thread(partial(write, message)) if is_large(message) else write(message)


def log_slow(log: SlowRequests, call: KafkaCall, queue: float, work: float, remote: float, send: float) -> None:
    """Log a slow request. All times are in seconds; `work` is the whole time of the work, including `remote`."""
    translation, session = _BY_KEY[call.key], call.session
    log.log(
        translation.api.name,
        f"version {call.version}",
        client_id=call.client_id,
        principal=session.principal,
        address=session.host,
        stages_s={"queue": queue, "local": work - remote, "remote": remote, "send": send},
    )


def trace(tracing: RequestTracing, call: KafkaCall, work: float, remote: float) -> None:
    """Record the span of a request that was answered now. Times are as in `log_slow`."""
    tracing.answered(
        _BY_KEY[call.key].api.name,
        "",
        now_ns=time_ns(),
        local_s=work - remote,
        remote_s=remote,
        attributes={
            "messaging.system": "kafka",
            "messaging.client.id": call.client_id or "",
            "client.address": call.session.host,
        },
    )


def _join(call: KafkaCall, found: Pieces) -> Frame:
    """Return the frame: size, correlation id, tagged fields if the version has them, body."""
    tags = _format_of(call.key, call.version).response_tags
    first = found[0]
    if len(found) == 1 and isinstance(first, bytes):
        return (_SIZE_AND_CORRELATION.pack(4 + len(tags) + len(first), call.correlation_id) + tags + first,)
    size = 4 + len(tags) + _size_of(found)
    head = _SIZE_AND_CORRELATION.pack(size, call.correlation_id) + tags
    return (head + first, *found[1:]) if isinstance(first, bytes) else (head, *found)
