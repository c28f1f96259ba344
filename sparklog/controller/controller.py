"""The controller of a broker: it is one of several candidates, and the active one as long as it is elected.

one task, one queue     store watches, answers of brokers, requests and the clock put events there; the task takes
                        one, and the next when that is done. An event that stands in the queue is not put twice
elected                 at the start, and whenever `/controller` goes. The node is watched before it is read
no more                 another was elected: seen at the watch, or as a write is refused, or as a broker says so;
                        the store's session has expired; or something failed that cannot be gone on from: then it
                        gives up the office, and whoever is elected begins with what is in the store. In each case
                        the active controller is dropped as a whole, and requests get NOT_CONTROLLER
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ControllerMoved, KafkaError, NotController, StoreError
from sparklog.cluster.elections import Elected, elect, find_controller, resign
from sparklog.cluster.history import Note, note_nothing
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers
from sparklog.cluster.store import SessionState, Store
from sparklog.controller.active import ActiveController
from sparklog.controller.figures import ClusterFigures
from sparklog.controller.figures import count as count_cluster
from sparklog.controller.operation import Operation
from sparklog.controller.outbox import Request
from sparklog.controller.watching import StoreEvent

RETRY_BACKOFF_S = 0.5
logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """Somebody wants something done by the active controller."""

    function: Callable[[ActiveController], Awaitable[Any]]
    done: asyncio.Future[Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    broker: BrokerInfo
    request: Request
    response: Any


@dataclass(frozen=True, slots=True)
class _LeftBehind:
    broker_id: int


@dataclass(frozen=True, slots=True, eq=False)
class _Tick:
    operation: Operation


@dataclass(frozen=True, slots=True)
class _Expired:
    """The store's session is over, and `/controller` with it."""


_Event = StoreEvent | _Asked | _Answer | _LeftBehind | _Tick | _Expired


class Controller:
    """Started and stopped with its broker, and used on its event loop."""

    def __init__(
        self,
        *,
        store: Store,
        directory_id: str,
        peers: Peers,
        config: BrokerConfig,
        clock: Clock,
        note: Note = note_nothing,
    ) -> None:
        """`directory_id`: of the broker's first log directory: who has it may take over from its own earlier life.
        `note` takes down what is decided."""
        self._store = store
        self._directory_id = directory_id
        self._peers = peers
        self._config = config
        self._clock = clock
        self._note = note
        self._active: ActiveController | None = None
        self._numbers = count(1)
        self._events: dict[_Event, None] = {}
        self._has_events = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_watched = False
        self._is_stopped = False

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def epoch(self) -> int | None:
        """None where it is not active."""
        return self._active.elected.epoch if self._active else None

    @property
    def figures(self) -> ClusterFigures | None:
        """How the cluster is; None where it is not active. May be asked on any thread."""
        active = self._active
        return count_cluster(active.parts.context) if active else None

    # Its broker's

    async def start(self) -> None:
        """Become a candidate. It is elected, or not, some time later."""
        self._loop = asyncio.get_running_loop()
        self._store.listen(self._session_changed)
        self._put(StoreEvent.CONTROLLER)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Give up the office, if it has it; the store may be unreachable."""
        self._is_stopped = True
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for event in self._events:
            if isinstance(event, _Asked):
                _refuse(event.done, NotController("the broker stops"))
        self._events.clear()
        await self._give_up()

    # Requests

    async def ask(self, function: Callable[[ActiveController], Awaitable[T]]) -> T:
        """What `function` returns: called in the order of events, and nothing else happens meanwhile.

        Raises NotController where this is not the active controller, also where it ends being that meanwhile: what was
        asked for may have been done then. Raises whatever KafkaError `function` raises.
        """
        if self._active is None or self._is_stopped:
            raise NotController(f"broker {self._config.broker_id} is not the controller")
        done: asyncio.Future[T] = self._loop.create_future()
        self._put(_Asked(function, done))
        return await done

    # What happens, as others tell

    def answered(self, broker: BrokerInfo, request: Request, response: Any) -> None:
        self._put(_Answer(broker, request, response))

    def deposed(self) -> None:
        self._put(StoreEvent.CONTROLLER)

    def left_behind(self, broker: BrokerInfo) -> None:
        self._put(_LeftBehind(broker.broker_id))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._put_threadsafe(_Expired())
        elif state is SessionState.CONNECTED:
            self._put_threadsafe(StoreEvent.CONTROLLER)

    def _controller_changed(self, _: str) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits for this
            self._loop.call_soon_threadsafe(self._watch_called)

    def _watch_called(self) -> None:
        self._is_watched = False
        self._put(StoreEvent.CONTROLLER)

    def _put_threadsafe(self, event: _Event) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: _Event) -> None:
        if not self._is_stopped:
            self._events.setdefault(event)
            self._has_events.set()

    def _put_later(self, delay_s: float, event: _Event) -> None:
        def due() -> None:
            self._timers.discard(handle)
            self._put(event)

        handle = self._loop.call_later(delay_s, due)
        self._timers.add(handle)

    # The task

    async def _run(self) -> None:
        while True:
            await self._has_events.wait()
            self._has_events.clear()
            while self._events:
                event = next(iter(self._events))
                del self._events[event]
                await self._take(event)

    async def _take(self, event: _Event) -> None:
        try:
            await self._handle(event)
        except ControllerMoved as error:
            logger.info("no longer the controller: %s", error)
            self._step_down()
            self._put(StoreEvent.CONTROLLER)
        except Exception as error:
            # What this controller knows may be wrong from here on; what is in the store is not.
            expected = isinstance(error, StoreError)
            logger.log(logging.WARNING if expected else logging.ERROR, "%s: %s", event, error, exc_info=not expected)
            await self._give_up()
            self._put_later(RETRY_BACKOFF_S, StoreEvent.CONTROLLER)

    async def _handle(self, event: _Event) -> None:
        active = self._active
        match event:
            case StoreEvent.CONTROLLER:
                await self._look_who_is_controller()
            case _Expired():
                self._step_down()
            case _Asked(function, done):
                await self._do(function, done)
            case StoreEvent() if active:
                await active.handle(event)
            case _Answer(broker, request, response) if active:
                await active.answered(broker, request, response)
            case _LeftBehind(broker_id) if active:
                active.left_behind(broker_id)
            case _Tick(operation) if active and operation in tuple(active.operations):
                self._put_tick(operation)
                await operation.tick()

    async def _do(self, function: Callable[[ActiveController], Awaitable[Any]], done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            return None
        if self._active is None:
            return _refuse(done, NotController(f"broker {self._config.broker_id} is no longer the controller"))
        try:
            result = await function(self._active)
        except KafkaError as error:
            _refuse(done, error)
        except BaseException as error:
            _refuse(done, NotController(f"the controller has failed: {error}"))
            raise
        else:
            if not done.done():
                done.set_result(result)
        return None

    async def _look_who_is_controller(self) -> None:
        controller = await self._find_controller()
        if self._active:
            await self._active.parts.store.check()
            if controller == self._config.broker_id:
                return
            raise ControllerMoved(f"the controller is {controller}")
        broker_id, time_ms = self._config.broker_id, self._clock.time_ms()
        elected = await asyncio.to_thread(elect, self._store, broker_id, self._directory_id, time_ms=time_ms)
        if isinstance(elected, Elected):
            await self._begin(elected)

    async def _find_controller(self) -> int:
        watch = None if self._is_watched else self._controller_changed
        self._is_watched = True  # before it is set: it may be called at once
        try:
            return await asyncio.to_thread(find_controller, self._store, watch)
        except StoreError:
            self._is_watched = False
            raise

    async def _begin(self, elected: Elected) -> None:
        self._active = ActiveController(
            elected,
            store=self._store,
            peers=self._peers,
            config=self._config,
            numbers=self._numbers,
            note=self._note,
            tell=self._put,
            correspondent=self,
        )
        for operation in self._active.operations:
            self._put_tick(operation)
        await self._active.begin()

    def _put_tick(self, operation: Operation) -> None:
        if operation.interval_s is not None:
            self._put_later(operation.interval_s, _Tick(operation))

    async def _give_up(self) -> None:
        """Step down, and let somebody else be elected, as far as the store can be told."""
        elected = self._active.elected if self._active else None
        self._step_down()
        if elected:
            with suppress(StoreError):  # the session is over, or will be: the node goes with it
                await asyncio.to_thread(resign, self._store, elected)

    def _step_down(self) -> None:
        if self._active:
            logger.info("the controller of epoch %s ends", self._active.elected.epoch)
            self._active.close()
            self._active = None
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


def _refuse(done: asyncio.Future[Any], error: KafkaError) -> None:
    if not done.done():
        done.set_exception(error)
