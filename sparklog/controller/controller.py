"""The controller of a broker: a candidate that is active while it is elected.

one task, one queue     store watches, answers of brokers, requests and the clock put events into the queue; the task
                        handles one event at a time. An event that is in the queue is not added again
election                at the start, and whenever `/controller` is deleted. The watch is set before the node is read
end                     another controller was elected (a watch, a refused write or a broker shows it); the store's
                        session has expired; or an error has occurred: then the controller resigns, and the next one
                        begins with the state in the store. In each case the active controller is dropped as a whole,
                        and requests get NOT_CONTROLLER
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct

from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ControllerMoved, KafkaError, LostStates, NotController, StoreError
from sparklog.cluster.elections import ControllerElection, elect, find_controller, resign
from sparklog.cluster.history import HistoryRecorder, note_nothing
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.peers import Peers
from sparklog.cluster.store import SessionState, Store
from sparklog.controller.active import ActiveController
from sparklog.controller.context import ClusterFigures, count_figures
from sparklog.controller.operation import ControllerOperation
from sparklog.controller.outbox import Request
from sparklog.controller.store_watches import StoreEvent

RETRY_BACKOFF_S = 0.5
logger = logging.getLogger(__name__)
T = TypeVar("T")


class _ControllerRequest(Struct, frozen=True, eq=False):
    """A request to the active controller."""

    function: Callable[[ActiveController], Awaitable[Any]]
    done: asyncio.Future[Any]


class _BrokerResponse(Struct, frozen=True, eq=False):
    broker: BrokerInfo
    request: Request
    response: Any


class _QueueOverflow(Struct, frozen=True):
    broker_id: int


class _Refusal(Struct, frozen=True):
    """A broker remembers a later controller epoch than this one."""

    controller_epoch: int


class _OperationTick(Struct, frozen=True, eq=False):
    operation: ControllerOperation


class _SessionExpiry(Struct, frozen=True):
    """The store's session has expired, and `/controller` is gone with it."""


_Event = StoreEvent | _ControllerRequest | _BrokerResponse | _QueueOverflow | _Refusal | _OperationTick | _SessionExpiry


class Controller:
    """The controller of one broker, started and stopped with it and used on its event loop.

    Implements ChannelListener.
    """

    def __init__(
        self,
        *,
        store: Store,
        directory_id: str,
        peers: Peers,
        config: BrokerConfig,
        clock: Clock,
        note: HistoryRecorder = note_nothing,
        store_id: str = "",
        is_own_store: Callable[[], bool] = lambda: True,
        on_lost_states: Callable[[LostStates], None] = lambda _: None,
    ) -> None:
        """directory_id: id of the broker's first log directory, by which a restarted controller replaces its old node.
        note: records decisions. store_id: the store's id. is_own_store: returns whether the store is still the one of
        the broker's start; may block, and raise StoreError. on_lost_states: called if the store has lost states of
        partitions.
        """
        self._store = store
        self._directory_id = directory_id
        self._peers = peers
        self._config = config
        self._clock = clock
        self._note = note
        self._store_id = store_id
        self._is_own_store = is_own_store
        self._on_lost_states = on_lost_states
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
        """Whether this broker is the controller. It may not know yet that another was elected."""
        return self._active is not None

    @property
    def epoch(self) -> int | None:
        """The controller epoch; None if this controller is not active."""
        return self._active.elected.epoch if self._active else None

    @property
    def figures(self) -> ClusterFigures | None:
        """Figures of the cluster; None if this controller is not active. May be read on any thread."""
        active = self._active
        return count_figures(active.dependencies.context) if active else None

    # Start and stop, by the broker

    async def start(self) -> None:
        """Become a candidate; the task elects the controller later."""
        self._loop = asyncio.get_running_loop()
        self._store.listen(self._session_changed)
        self._put(StoreEvent.CONTROLLER)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Resign if this controller is active; the store may be unreachable."""
        self._is_stopped = True
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        for event in self._events:
            if isinstance(event, _ControllerRequest):
                _refuse(event.done, NotController("the broker stops"))
        self._events.clear()
        await self._resign()

    # Requests

    async def ask(self, function: Callable[[ActiveController], Awaitable[T]]) -> T:
        """Call `function` in the order of events and return its result. No other event is handled meanwhile.

        Raises NotController if this controller is not active, or ends meanwhile: the request may have been carried out
        then. Raises any KafkaError that `function` raises.
        """
        if self._active is None or self._is_stopped:
            raise NotController(f"broker {self._config.broker_id} is not the controller")
        done: asyncio.Future[T] = self._loop.create_future()
        self._put(_ControllerRequest(function, done))
        return await done

    # Events

    def answered(self, broker: BrokerInfo, request: Request, response: Any) -> None:
        self._put(_BrokerResponse(broker, request, response))

    def refused(self, controller_epoch: int) -> None:
        self._put(_Refusal(controller_epoch))

    def left_behind(self, broker: BrokerInfo) -> None:
        self._put(_QueueOverflow(broker.broker_id))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._put_threadsafe(_SessionExpiry())
        elif state is SessionState.CONNECTED:
            self._put_threadsafe(StoreEvent.CONTROLLER)

    def _controller_changed(self, _: str) -> None:
        with suppress(RuntimeError):  # the loop is closed: the event is not needed
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
                await self._handle_safely(event)

    async def _handle_safely(self, event: _Event) -> None:
        """Handle an event; end the active controller if that fails."""
        try:
            await self._handle(event)
        except ControllerMoved as error:
            logger.info("no longer the controller: %s", error)
            self._step_down()
            self._put(StoreEvent.CONTROLLER)
        except Exception as error:
            # This controller's context may be wrong from here on; the store is not.
            expected = isinstance(error, StoreError)
            logger.log(logging.WARNING if expected else logging.ERROR, "%s: %s", event, error, exc_info=not expected)
            await self._resign()
            if isinstance(error, LostStates):
                self._on_lost_states(error)
            self._put_later(RETRY_BACKOFF_S, StoreEvent.CONTROLLER)

    async def _handle(self, event: _Event) -> None:
        active = self._active
        match event:
            case StoreEvent.CONTROLLER:
                await self._check_election()
            case _SessionExpiry():
                self._step_down()
                self._put(StoreEvent.CONTROLLER)  # the event may be late: this broker was elected in the next session
            case _ControllerRequest(function, done):
                await self._answer(function, done)
            case StoreEvent() if active:
                await active.handle(event)
            case _BrokerResponse(broker, request, response) if active:
                await active.answered(broker, request, response)
            case _QueueOverflow(broker_id) if active:
                active.left_behind(broker_id)
            case _Refusal(controller_epoch) if active and controller_epoch == active.elected.epoch:
                await self._pass_lost_epoch(active)
            case _OperationTick(operation) if active and operation in tuple(active.operations):
                self._put_tick(operation)
                await operation.tick()
        if self._active:
            await self._active.complete_moves()

    async def _answer(self, function: Callable[[ActiveController], Awaitable[Any]], done: asyncio.Future[Any]) -> None:
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

    async def _check_election(self) -> None:
        """Find the present controller; become it if there is none. Raises ControllerMoved if another was elected."""
        controller = await self._find_controller()
        if self._active:
            await self._active.dependencies.store.check()
            if controller == self._config.broker_id:
                return None
            raise ControllerMoved(f"the controller is {controller}")
        broker_id, time_ms = self._config.broker_id, self._clock.time_ms()
        if not await asyncio.to_thread(self._is_own_store):
            return logger.error("broker %d is not elected: the cluster store has lost topics", broker_id)
        elected = await asyncio.to_thread(elect, self._store, broker_id, self._directory_id, time_ms=time_ms)
        if isinstance(elected, ControllerElection):
            await self._begin(elected)
        return None

    async def _pass_lost_epoch(self, active: ActiveController) -> None:
        """Raise the epoch in the store, and resign. Raises ControllerMoved if the refusal is due to a later controller.

        Otherwise the store has lost the epoch of earlier controllers.
        """
        await active.dependencies.store.check()
        logger.warning(
            "brokers remember a later controller epoch than %d: the cluster store has lost it, and it is raised",
            active.elected.epoch,
        )
        await self._resign(has_lost_epoch=True)
        self._put(StoreEvent.CONTROLLER)

    async def _find_controller(self) -> int:
        watch = None if self._is_watched else self._controller_changed
        self._is_watched = True  # before the watch is set: it may be called at once
        try:
            return await asyncio.to_thread(find_controller, self._store, watch)
        except StoreError:
            self._is_watched = False
            raise

    async def _begin(self, elected: ControllerElection) -> None:
        self._active = ActiveController(
            elected,
            store=self._store,
            peers=self._peers,
            config=self._config,
            numbers=self._numbers,
            note=self._note,
            is_own_store=self._is_own_store,
            report=self._put,
            listener=self,
            store_id=self._store_id,
        )
        for operation in self._active.operations:
            self._put_tick(operation)
        await self._active.begin()

    def _put_tick(self, operation: ControllerOperation) -> None:
        if operation.interval_s is not None:
            self._put_later(operation.interval_s, _OperationTick(operation))

    async def _resign(self, *, has_lost_epoch: bool = False) -> None:
        """Step down, and resign in the store if it can be reached, so that another broker is elected."""
        elected = self._active.elected if self._active else None
        self._step_down()
        if elected:
            with suppress(StoreError):  # the node is deleted when the session ends
                await asyncio.to_thread(resign, self._store, elected, has_lost_epoch=has_lost_epoch)

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
