"""The network between the processes of a simulation: each message takes its own time, and some never arrive.

    call        the request and the answer travel separately: each may be late, be overtaken, or be lost
    double      a request may arrive twice, at any two times, as if its sender had retried; the first answer counts.
                Brokers and gRPC clients send such requests. A connection of Kafka's protocol has none
    hold up     some requests, of a kind that the sender names, arrive seconds later. They are the markers of
                transactions: coordinators then move between the decision and the markers. A late request that meets
                another process is dropped
    loss        the caller learns that the connection broke, or gets no answer until its timeout. The receiver may have
                done the request, or may still do it later
    block       no message from one process reaches another until `unblock` or `heal`. Each direction is blocked alone
    kill        a killed process makes its calls under way fail soon. Those to a machine that loses power time out
    copy        the network copies each message when it is sent, with the bytes of the files that it refers to, so
                processes share no memory

`SimPeers` is a broker's access to the network (cluster/peers.py). Clients call `SimNetwork.call` directly.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any
from uuid import UUID

from msgspec import Struct

from sparklog.base.errors import KafkaError, NetworkException, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import PEER_APIS
from sparklog.cluster.model import BrokerInfo
from sparklog.coordinator.transaction_messages import WriteTxnMarkers
from sparklog.log.slice import LogSlice
from sparklog.testing.sim.loop import SimLoop, SimProcess
from sparklog.testing.sim.trace import Trace

Serve = Callable[[Api[Any, Any], Any], Awaitable[Any]]
CHANCE_TO_HOLD_UP = 0.1
HELD_UP_MS = 3_000.0


@dataclass(frozen=True, slots=True)
class SentSlice:
    """The bytes that a LogSlice refers to, on their way to a client."""

    data: bytes

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.data)

    def read(self) -> bytes:
        """Return all bytes."""
        return self.data


def copied(value: Any) -> Any:
    """Return a deep copy of `value`. Immutable parts are shared, not copied."""
    kind = type(value)
    if kind in _UNCHANGING or isinstance(value, Enum):
        return value
    if copy := _COPIES.get(kind):
        return copy(value)
    if isinstance(value, tuple):
        return _copied_tuple(value)
    if issubclass(kind, Struct):
        return _copied_struct(value, kind)
    return _copied_fields(value, kind) if is_dataclass(kind) else pickle.loads(pickle.dumps(value))


def _copied_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = [copied(each) for each in value]
    if all(part is each for part, each in zip(parts, value, strict=True)):
        return value
    make: Callable[[list[Any]], tuple[Any, ...]] = getattr(type(value), "_make", tuple)
    return make(parts)


def _copied_fields(value: Any, kind: type[Any]) -> Any:
    names = _FIELDS.get(kind)
    if names is None:
        names = _FIELDS[kind] = tuple(each.name for each in fields(kind))
    before = [getattr(value, name) for name in names]
    after = [copied(each) for each in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return value
    copy: Any = object.__new__(kind)
    for name, each in zip(names, after, strict=True):
        object.__setattr__(copy, name, each)
    return copy


def _copied_struct(value: Any, kind: type[Any]) -> Any:
    names = kind.__struct_fields__
    before = [getattr(value, name) for name in names]
    after = [copied(each) for each in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return value
    return kind(**dict(zip(names, after, strict=True)))


def _copied_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {copied(name): copied(each) for name, each in value.items()}


_COPIES: dict[type, Callable[[Any], Any]] = {
    LogSlice: lambda found: SentSlice(found.read()),
    bytearray: bytearray,
    memoryview: bytearray,
    list: lambda values: [copied(each) for each in values],
    dict: _copied_mapping,
    MappingProxyType: _copied_mapping,
}
_UNCHANGING = frozenset({int, str, bytes, bool, float, type(None), UUID, TopicPartition})
_FIELDS: dict[type, tuple[str, ...]] = {}


def served_by_listener(name: str) -> Api[Any, Any]:
    """Return an API named `name` for a request that travels as bytes.

    The receiver passes the request to one of its listeners. The API's own handler raises TypeError.
    """

    async def handle(*_: Any) -> None:
        raise TypeError(f"no listener took {name}")

    return Api(name=name, handle=handle, rights=())


@dataclass(slots=True)
class Weather:
    """The present state of the network."""

    delay_ms: float = 0.5
    """The mean delay of a message: most messages take less, a few take much more."""
    chance_of_loss: float = 0.0
    chance_of_delay: float = 0.002
    """The chance that a message is held up for up to `long_delay_ms`."""
    long_delay_ms: float = 2_000.0
    chance_of_double: float = 0.0
    """The chance that a request is sent a second time, if its sender allows it."""


@dataclass(frozen=True, slots=True)
class _Endpoint:
    process: SimProcess
    serve: Serve


@dataclass(slots=True, eq=False)
class _Call:
    source: str
    target: str
    api: Api[Any, Any]
    answer: asyncio.Future[Any]
    only_for: _Endpoint | None = None
    """The receiver, if the request must not reach a later process of the same name."""


class SimNetwork:
    """The network of a simulated cluster."""

    def __init__(self, loop: SimLoop, chance: random.Random, trace: Trace) -> None:
        self.weather = Weather()
        self._loop = loop
        self._chance = chance
        self._trace = trace
        self._endpoints: dict[str, _Endpoint] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._calls: dict[_Call, None] = {}
        self._context = copy_context()  # belongs to no process: a message outlives its sender

    def attach(self, name: str, process: SimProcess, serve: Serve) -> None:
        """Deliver requests for `name` to `process` from now on; `serve` handles them."""
        self._endpoints[name] = _Endpoint(process, serve)

    # Faults

    def block(self, source: str, target: str) -> None:
        """Drop every message from `source` to `target`; the other direction still works."""
        self._blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        """Deliver messages from `source` to `target` again."""
        self._blocked.discard((source, target))

    def change_weather(self, weather: Weather) -> None:
        """Lose, delay and repeat messages as `weather` says from now on."""
        self.weather = weather

    def heal(self) -> None:
        """Unblock every direction, and end all losses and long delays."""
        self._blocked.clear()
        self.weather = Weather(chance_of_delay=0.0)

    def break_connections(self, name: str) -> None:
        """Fail all calls from and to `name` soon, as a machine does when a process ends but its power is on."""
        for call in list(self._calls):
            if name in (call.source, call.target):
                self._later(self._fail, call, NetworkException(f"the connection to {name} was closed"))

    # Calls

    async def call(
        self,
        source: str,
        target: str,
        api: Api[Any, Any],
        request: Any,
        *,
        timeout_ms: int,
        may_double: bool = False,
        may_be_held_up: bool = False,
    ) -> Any:
        """Return the answer of `target`.

        may_double: whether the network may deliver the request twice
        may_be_held_up: whether the request may take seconds

        Raises the KafkaError that refuses the request, NetworkException if the connection breaks, or RequestTimedOut
        after `timeout_ms`.
        """
        call = _Call(source, target, api, self._loop.create_future())
        self._calls[call] = None
        timer = self._loop.call_later(timeout_ms / 1000, self._time_out, call, timeout_ms, context=self._context)
        self._trace.note(f"{source} > {target} {api.name}")
        if not self._arrives(source, target):
            self._maybe_break(call, timeout_ms)
        elif may_be_held_up and self._chance.random() < CHANCE_TO_HOLD_UP:
            call.only_for = self._endpoints.get(target)
            delay_s = self._chance.uniform(0, HELD_UP_MS) / 1000
            self._loop.call_later(delay_s, self._deliver, call, copied(request), context=self._context)
        else:
            self._later(self._deliver, call, copied(request))
        if may_double and self.weather.chance_of_double and self._chance.random() < self.weather.chance_of_double:
            self._later(self._deliver, call, copied(request))
        try:
            answer = await call.answer
        finally:
            timer.cancel()
            self._calls.pop(call, None)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def _deliver(self, call: _Call, request: Any) -> None:
        endpoint = self._endpoints.get(call.target)
        if endpoint is None or endpoint.process.is_dead or call.only_for not in (None, endpoint):
            self._reply(call, NetworkException(f"{call.target} cannot be reached"))
            return
        context = endpoint.process.context()
        self._loop.call_soon(self._begin, endpoint, call, request, context=context)

    def _begin(self, endpoint: _Endpoint, call: _Call, request: Any) -> None:
        self._loop.create_task(self._serve(endpoint, call, request))

    async def _serve(self, endpoint: _Endpoint, call: _Call, request: Any) -> None:
        answer: Any
        try:
            answer = copied(await endpoint.serve(call.api, request))
        except KafkaError as error:
            answer = copied(error.with_traceback(None))
        except Exception as error:
            if endpoint.process.is_dead:
                return
            self._loop.call_exception_handler(
                {"message": f"{call.target} failed in {call.api.name}", "exception": error}
            )
            raise
        if not endpoint.process.is_dead:
            self._reply(call, answer)

    def _reply(self, call: _Call, answer: Any) -> None:
        if self._arrives(call.target, call.source):
            self._later(self._settle, call, answer)
        else:
            self._maybe_break(call, 1_000)

    def _settle(self, call: _Call, answer: Any) -> None:
        if not call.answer.done():
            what = type(answer).__name__
            self._trace.note(f"{call.source} < {call.target} {call.api.name} {what}")
            call.answer.set_result(answer)

    def _fail(self, call: _Call, error: KafkaError) -> None:
        self._settle(call, error)

    def _time_out(self, call: _Call, timeout_ms: int) -> None:
        self._settle(call, RequestTimedOut(f"no answer from {call.target} in {timeout_ms} ms"))

    def _maybe_break(self, call: _Call, within_ms: float) -> None:
        if self._chance.random() < 0.5:
            error = NetworkException(f"the connection to {call.target} broke")
            delay_s = self._chance.uniform(0, within_ms) / 1000
            self._loop.call_later(delay_s, self._fail, call, error, context=self._context)

    def _arrives(self, source: str, target: str) -> bool:
        if self._blocked and (source, target) in self._blocked:
            return False
        lossy = self.weather.chance_of_loss
        return not lossy or self._chance.random() >= lossy

    def _later(self, function: Callable[..., None], *args: Any) -> None:
        weather = self.weather
        delay_ms = self._chance.expovariate(1 / weather.delay_ms)
        if weather.chance_of_delay and self._chance.random() < weather.chance_of_delay:
            delay_ms += self._chance.uniform(0, weather.long_delay_ms)
        self._loop.call_later(delay_ms / 1000, function, *args, context=self._context)


def _must_be_single(request: Any) -> bool:
    """Return whether a late second copy of the request does harm in Apache Kafka too.

    In protocol 1, a marker that the same coordinator repeats ends the next transaction of the same epoch.
    """
    return isinstance(request, WriteTxnMarkers) and not all(marker.is_strict for marker in request.markers)


class SimPeers:
    """The network for the process `name`. Implements Peers. It knows brokers by their gRPC addresses."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self._network = network
        self._name = name

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        return await self._network.call(
            self._name,
            broker.grpc_address,
            PEER_APIS[type(request)],
            request,
            timeout_ms=timeout_ms,
            may_double=not _must_be_single(request),
            may_be_held_up=isinstance(request, WriteTxnMarkers),
        )

    async def close(self) -> None:
        self._network.break_connections(self._name)
