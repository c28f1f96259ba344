"""A refused request is answered with its error, in all places of the response."""

from __future__ import annotations

import itertools
import struct
from random import Random
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from sparklog.base.errors import CoordinatorNotAvailable
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.dispatch import answer, read_frame
from sparklog.server.kafka.translation import Session, Translation
from sparklog.testing import RunningBroker
from support.kafka.connection import message_frame
from support.kafka.random_requests import make_request

ACKS_NONE = 0
EXAMPLES = 4

pytestmark = pytest.mark.slow


@pytest.fixture
def refusing(kafka_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the called APIs, each of which refuses."""
    asked: list[str] = []

    async def refuse(api: Any, request: Any, caller: Any) -> Any:
        asked.append(api.name)
        raise CoordinatorNotAvailable("refused")

    monkeypatch.setattr(kafka_broker.node.broker.clients, "serve", refuse)
    return asked


def response_to(broker: RunningBroker, request: Any) -> Any:
    """The answer without its header; None without an answer."""
    key, version = request.__api_key__, request.__version__
    frame = bytearray(message_frame(request))
    session = Session(listener="PLAINTEXT", host="127.0.0.1")

    async def ask() -> bytes:
        found = await answer(read_frame(broker.node.broker, session, memoryview(frame)))
        return b"".join(bytes(part) for part in found)

    response = broker.run(ask())
    if not response:
        return None
    kind = load_response_schema(key, version)
    (size,) = struct.unpack_from(">i", response)
    assert size == len(response) - 4
    _, header_size = entity_reader(kind.__header_schema__)(response[4:], 0)
    found, body_size = entity_reader(kind)(response[4 + header_size :], 0)
    assert header_size + body_size == size
    return found


@pytest.mark.parametrize("translation", TRANSLATIONS, ids=lambda translation: translation.api.name)
def test_a_refused_request_is_never_answered_as_if_it_had_succeeded(
    kafka_broker: RunningBroker, refusing: list[str], translation: Translation
) -> None:
    first, last = translation.api.versions
    for version, seed in itertools.product(range(first, last + 1), range(EXAMPLES)):
        request = make_request(Random(seed), translation.api.key, version)
        if getattr(request, "acks", None) == ACKS_NONE:
            continue  # there is no response to say it in
        refusing.clear()
        response = response_to(kafka_broker, request)
        assert not (refusing and repr(ErrorCode.none) in repr(response)), response


def test_every_api_tells_of_a_refusal(kafka_broker: RunningBroker, refusing: list[str]) -> None:
    """In its first and last version: some have topic ids, which are unknown, some have no field for an error."""
    for translation in TRANSLATIONS:
        requests = [
            make_request(Random(seed), translation.api.key, version)
            for version in translation.api.versions
            for seed in range(2 * EXAMPLES)
        ]
        told = [
            repr(ErrorCode.coordinator_not_available) in repr(response_to(kafka_broker, request))
            for request in requests
            if getattr(request, "acks", None) != ACKS_NONE
        ]
        assert any(told) or translation.api.name not in refusing, translation.api.name
