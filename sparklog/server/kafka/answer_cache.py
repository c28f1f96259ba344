"""Cache of answers: the bytes of an answer are sent again for an equal request.

Clients repeat requests for metadata, which changes rarely. An API that names the state of its answers (`Api.cached_by`)
is cached, by version and by the bytes of the request after its header. An entry is valid while that state has the
generation of the answer. So a cached answer has the same bytes as a new answer of the handler.

Not cached: an answer with an error or a throttle time; an answer whose request has changed the state, such as by the
creation of a topic; large requests and very large answers. New entries replace the oldest ones.

Each listener has a cache, because answers contain the addresses of their listener. With an authorizer, principal and
host are part of the key; a refusal is an error, so it is decided and counted each time. With an audit log, which needs
each decision, only APIs without authorization are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sparklog.broker.api import Api
from sparklog.broker.node import Broker
from sparklog.security.acls import Subject
from sparklog.server.kafka.messages import Message

MAX_ENTRIES = 4096
MAX_REQUEST_BYTES = 4 << 10
"""Enough for some hundred names of topics."""
MAX_ANSWER_BYTES = 1 << 20
"""Enough for some twenty thousand partitions."""
MAX_BYTES = 8 << 20
"""Maximum bytes of all requests and answers of a listener."""
CacheKey = tuple[int, int, Subject | None, bytes]
"""API key, version, the client if there is an authorizer, and the bytes of a request after its header."""


class CachedAnswer(NamedTuple):
    """The bytes of an answer after the correlation id."""

    generation: int
    data: bytes
    request: Message
    """The decoded request, if it describes its connection; else None."""


class CacheLookup(NamedTuple):
    """A lookup of a request of a cached API."""

    cache: AnswerCache
    question: CacheKey
    generation: int
    """Generation of the state at the read of the request."""
    answer: CachedAnswer | None
    """None: the handler must answer."""


class AnswerCache:
    """The cached answers of one listener. Used on one event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._has_authorizer = bool(broker.config.authorizer_class_name)
        self._is_audited = self._has_authorizer and bool(broker.config.authorizer_audit_log)
        self._generations: dict[int, Callable[[], int]] = {}
        self._answers: dict[CacheKey, CachedAnswer] = {}
        self._bytes = 0

    @property
    def count(self) -> int:
        return len(self._answers)

    @property
    def size_bytes(self) -> int:
        """The bytes of all requests and answers."""
        return self._bytes

    def ask(self, api: Api[Any, Any], version: int, subject: Subject, body: memoryview) -> CacheLookup | None:
        """Look up a request of an API with `cached_by`; return None if its answer cannot be cached.

        A request with a cached answer is counted, as one that took no time.
        """
        key = api.key
        assert key is not None
        generation_of = self._generations.get(key) or self._find_generation(api, key)
        if generation_of is None or len(body) > MAX_REQUEST_BYTES:
            return None
        generation = generation_of()
        question = (key, version, subject if self._has_authorizer else None, bytes(body))
        answer = self._answers.get(question)
        return CacheLookup(self, question, generation, answer if answer and answer.generation == generation else None)

    def keep(self, asked: CacheLookup, data: bytes, request: Message) -> None:
        """Cache an answer without errors, unless the state has changed since the lookup."""
        question, generation = asked.question, asked.generation
        if generation != self._generations[question[0]]() or len(data) > MAX_ANSWER_BYTES:
            return
        self._drop(question)
        self._answers[question] = CachedAnswer(generation, data, request)
        self._bytes += len(question[3]) + len(data)
        while len(self._answers) > MAX_ENTRIES or self._bytes > MAX_BYTES:
            self._drop(next(iter(self._answers)))

    def _drop(self, question: CacheKey) -> None:
        if answer := self._answers.pop(question, None):
            self._bytes -= len(question[3]) + len(answer.data)

    def _find_generation(self, api: Api[Any, Any], key: int) -> Callable[[], int] | None:
        if not self._broker.has_services or (self._is_audited and api.rights):
            return None
        found = self._generations[key] = self._broker.handlers.generation_of(api)
        return found
