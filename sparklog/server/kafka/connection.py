"""One client's connection (org.apache.kafka.common.network.KafkaChannel). Requests are answered one at a time.

A request is four bytes with its size, followed by that many bytes. Data is first read into a buffer that all
connections share. A request that is complete in that buffer is served at once, from a copy. For any other request, a
buffer of the request's size is allocated, and the rest is read into it. Large buffers are anonymous memory maps, which
use memory only for received bytes: a client that announces 100 MB and sends nothing costs nothing.

While a request is in progress, or its response is not sent completely, arriving data is held, and reading pauses after
the first read. So a connection has at most one request in progress, one response, and twice the shared buffer.

    idle        no part of a request has arrived; closed after connections.max.idle.ms
    arriving    a part has arrived; the rest must arrive within a minute (or connections.max.idle.ms if that is shorter)
                and one more second for each MiB; closed if the requests that arrive take too much memory together
    in progress no limit except those of the API
    muted       the client has exceeded a quota (`throttle`): nothing is read during its throttle time
    sending     closed if the peer reads nothing for connections.max.idle.ms: a consumer may stop reading while it
                processes records, for five minutes by its own default (max.poll.interval.ms)

A request that does not have to wait needs no task: its coroutine runs to its end at once. Small answers to requests
that arrived together are sent together: a write costs as much as the rest of a small request. After
`REQUESTS_PER_ITERATION` requests of one connection, other connections are served; after each request if others wait for
a slice of time (`quotas.TimeSlice`).
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import struct
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Protocol

from sparklog.base.errors import KafkaError
from sparklog.broker.metrics import ListenerMetrics, Metrics
from sparklog.broker.node import Broker
from sparklog.runtime.eager import go_on
from sparklog.runtime.remote_waits import OBSERVER
from sparklog.server.kafka.channels import Channel
from sparklog.server.kafka.dispatch import KafkaRequest, answer, log_slow, read_frame, trace
from sparklog.server.kafka.page_cache import Frame
from sparklog.server.kafka.quotas import ConnectionQuotas, RequestQueue, TimeSlice
from sparklog.server.kafka.throttle import ConnectionThrottle
from sparklog.server.kafka.translation import Session

SHARED_BYTES = 64 << 10
MIN_REQUEST_BYTES = 8
"""Size of a request header without a client id."""
REQUESTS_PER_ITERATION = 16
ARRIVAL_S = 60.0
ARRIVAL_BYTES_PER_S = 1 << 20
NEVER = float("inf")
_SIZE = struct.Struct(">i")
logger = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """The owner of a broker's connections, with their shared state."""

    broker: Broker
    queue: RequestQueue
    time_slice: TimeSlice
    idle_s: float
    is_stopping: bool
    shared: memoryview
    """Buffer of SHARED_BYTES for arriving data, shared because all connections run on one event loop."""

    quotas: ConnectionQuotas
    connections: set[KafkaConnection]

    def refused(self, why: str) -> None:
        """Called when a quota refused a connection."""
        ...

    def lost(self, connection: KafkaConnection) -> None:
        """Called when a connection is closed. One of its requests may still be in progress."""
        ...

    def ended(self, connection: KafkaConnection) -> None:
        """Called when a connection is closed and its last request has ended."""
        ...


class KafkaConnection:
    """The state of one connection. Used on one event loop only. Implements ChannelOwner and WaitObserver."""

    def __init__(
        self,
        host: ConnectionOwner,
        session: Session,
        figures: ListenerMetrics,
        open_channel: Callable[[KafkaConnection], Channel],
    ) -> None:
        """open_channel: returns the channel of this connection, which does not read yet."""
        self.session = session
        self.figures = figures
        self.deadline = monotonic() + host.idle_s
        self._host = host
        self._metrics: Metrics = host.broker.metrics
        self._queue = host.queue
        self._slice = host.time_slice
        self._slow_requests = host.broker.slow_requests
        self._shared = host.shared
        self._frame: memoryview | None = None  # of the arriving request
        self._filled = 0
        self._is_size = False  # whether `_frame` is for the four bytes of a request's size
        self._whole: memoryview | None = None  # a request that waits for its slice of time; it precedes `_held`
        self._held = bytearray()
        self._held_since = 0.0
        self._is_paused = False
        self._is_busy = False  # a request is in progress, or its response is not sent completely
        self._waits_for_slice = False
        self._is_corked = False  # the channel keeps answers for a common write
        self._input_ended = False
        self._is_lost = False
        self._task: asyncio.Task[Frame] | None = None
        self._request: KafkaRequest | None = None
        self._reserved = 0  # bytes reserved in the request queue
        self._is_in_queue = False
        self._remote_s = 0.0
        self._waits_since = 0.0
        self._throttle = ConnectionThrottle(host.broker.client_quotas, self._worked_s)
        self._quotas = host.broker.client_quotas
        self._began = 0.0  # the work on the present request
        self._mute: asyncio.TimerHandle | None = None
        self._times = (0.0, 0.0, 0.0)  # of the response being sent: seconds queued, time begun, time answered
        self.channel = open_channel(self)

    @property
    def is_idle(self) -> bool:
        """Whether every request that has arrived completely has been answered."""
        return not ((self._is_busy and self._mute is None) or self._held or self._whole)

    # ---- receiving ----

    def buffer(self) -> memoryview:
        return self._shared if self._frame is None else self._frame[self._filled :]

    def received(self, size: int) -> None:
        if self._frame is not None:
            self._filled += size
            if not self._is_size:
                self._queue.arrive(self, size)
                if self._is_lost:
                    return
            if self._filled == len(self._frame):
                self._frame_complete(self._frame)
        elif self._is_busy or self._waits_for_slice:
            self._hold_data(self._shared[:size])
        else:
            self._serve_received(self._shared[:size])

    def end_of_input(self) -> None:
        """Close the connection after the answers to all received requests: the client may still read.

        A request whose translation has `ends_with_connection` is not answered.
        """
        self._input_ended = True
        if self._waits_for_slice:
            return
        if (
            self.is_idle
            or not self._is_busy
            or (self._task and self._request and self._request.translation.ends_with_connection)
        ):
            self.channel.close()

    def _serve_received(self, data: memoryview) -> None:
        """Serve the requests in `data`, whose buffer is reused afterwards."""
        self._serve_all(data)
        if self._is_corked:
            self._is_corked = False
            if not (self._is_lost or self.channel.uncork() or self._is_busy):
                self._is_busy = True
                self.deadline = monotonic() + self._host.idle_s

    def _serve_all(self, data: memoryview) -> None:
        at, end, requests = 0, len(data), 1 if self._slice.waiting else REQUESTS_PER_ITERATION
        while at < end and not self._is_lost:
            if self._is_busy or requests == 0 or self._slice.is_over or self._queue.is_full:
                self._hold_data(data[at:])
                if not self._is_busy:
                    self._wait_for_slice()
                return
            requests -= 1
            if end - at < _SIZE.size:
                self._allocate_frame(_SIZE.size, data[at:], is_size=True)
                return
            (size,) = _SIZE.unpack_from(data, at)
            at += _SIZE.size
            if not self._is_allowed_size(size):
                return
            if end - at < size:
                self._allocate_frame(size, data[at:])
                return
            if not self._is_corked and at + size < end:
                self._is_corked = True
                self.channel.cork()
            self._serve(memoryview(bytearray(data[at : at + size])))
            at += size

    def _allocate_frame(self, size: int, start: memoryview, *, is_size: bool = False) -> None:
        """Allocate the buffer of a request (or of its size field) of which `start` has arrived."""
        try:
            self._frame = memoryview(bytearray(size) if size <= SHARED_BYTES else mmap.mmap(-1, size))
        except (OSError, MemoryError):
            self._refuse(f"there is no memory for a request of {size} bytes")
            return
        self._frame[: len(start)] = start
        self._filled = len(start)
        self._is_size = is_size
        if not is_size:
            self._queue.arrive(self, len(start))
            if self._is_lost:
                return
        allowed = min(ARRIVAL_S, self._host.idle_s) + size / ARRIVAL_BYTES_PER_S
        self.deadline = monotonic() + allowed

    def _frame_complete(self, frame: memoryview) -> None:
        self._frame = None
        if not self._is_size:
            self._queue.end_arrival(self)
            self._reserve(len(frame))
            if self._slice.is_over:
                self._whole = frame
                self._pause()
                self._wait_for_slice()
            else:
                self._serve(frame)
            return
        (size,) = _SIZE.unpack(frame)
        if self._is_allowed_size(size):
            self._allocate_frame(size, frame[:0])

    def _is_allowed_size(self, size: int) -> bool:
        least = 1 if self.session.opaque else MIN_REQUEST_BYTES
        if least <= size <= self.session.max_request_bytes:
            return True
        self._refuse(f"a request of {size} bytes, where {self.session.max_request_bytes} are allowed")
        return False

    def _wait_for_slice(self) -> None:
        """Schedule `_go_on` for the held data: once the queue has room, or after other connections."""
        self._waits_for_slice = True
        if self._queue.is_full:
            self._queue.wait(self._go_on)
        else:
            self._slice.wait(self._go_on)

    def _hold_data(self, data: memoryview) -> None:
        """Keep data that cannot be served yet, and pause reading until it is served."""
        self._held += data
        self._pause()

    def _pause(self) -> None:
        """Pause reading until the waiting request is served."""
        self._held_since = self._held_since or monotonic()
        self.deadline = NEVER
        if not self._is_paused:
            self._is_paused = True
            self.channel.pause()

    def _go_on(self) -> None:
        """Serve the held data, then continue reading."""
        self._waits_for_slice = False
        if self._is_lost:
            return
        if self._whole is not None:
            frame, self._whole = self._whole, None
            self._serve(frame)
        if self._held:
            held, self._held = self._held, bytearray()
            self._serve_received(memoryview(held))
        if self._is_lost or self._held or self._is_busy:
            return
        if self._input_ended or self._host.is_stopping:
            self.channel.close()
        elif self._is_paused:
            self._is_paused = False
            self.channel.resume()

    # ---- serving ----

    def _serve(self, frame: memoryview) -> None:
        """Answer one request: at once, or in a task if it has to wait."""
        began = monotonic()
        if began > self._slice.ends:
            self._slice.late(began)
        queued, self._held_since = (began - self._held_since if self._held_since else 0.0), 0.0
        try:
            request = read_frame(self._host.broker, self.session, frame)
        except Exception as error:  # noqa: BLE001 - any error ends this connection only
            self._close_after("reading a request", error)
            return
        self._remote_s = self._waits_since = 0.0
        if self._quotas.has_client_quotas or self.session.throttle:
            self._began, session, call = began, self.session, request.call
            applies = self._throttle.begin(call.key, session.principal, call.client_id, len(frame), began)
            if applies is not (session.throttle is not None):
                session.count_with(self._throttle if applies else None)
        OBSERVER.set(self)
        work = answer(request)
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            self._send(request, end.value, queued, began)
            if self._reserved:
                self._leave_queue()
            return
        except Exception as error:  # noqa: BLE001 - as above
            self._close_after(request.translation.api.name, error)
            return
        self._begin_task(request, work, waits_for, len(frame), queued, began)

    def _begin_task(
        self, request: KafkaRequest, work: Any, waits_for: Any, size: int, queued: float, began: float
    ) -> None:
        if not self._waits_since:
            if not self._reserved:
                self._reserve(size)
            self._queue.enter()
            self._is_in_queue = True
        self._is_busy = True
        self.deadline = NEVER
        self._request = request
        self._task = asyncio.get_running_loop().create_task(go_on(work, waits_for))
        self._task.add_done_callback(partial(self._task_ended, request, queued, began))

    def _task_ended(self, request: KafkaRequest, queued: float, began: float, task: asyncio.Task[Frame]) -> None:
        self._task = self._request = None
        self._is_busy = False
        if task.cancelled():
            self.channel.close()
        elif error := task.exception():
            self._close_after(request.translation.api.name, error)
        elif not self._is_lost:
            self._send(request, task.result(), queued, began)
        self._leave_queue()
        if self._is_lost:
            self._host.ended(self)
        elif not self._is_busy:
            self._go_on()

    def _send(self, request: KafkaRequest, frame: Frame, queued: float, began: float) -> None:
        answered = monotonic()
        if frame and not self.channel.send(frame):
            self._is_busy = True
            self._request = request
            self._times = (queued, began, answered)
            self.deadline = answered + self._host.idle_s
            return
        self._response_sent(request, queued, began, answered)

    def _response_sent(self, request: KafkaRequest, queued: float, began: float, answered: float) -> None:
        now = monotonic()
        self.deadline = now + self._host.idle_s
        stages = self._metrics.stages[request.translation.api.name]
        stages.observe(queued, answered - began, self._remote_s, now - answered)
        if (tracing := self._host.broker.tracing) is not None and tracing.is_wanted(""):
            trace(tracing, request.call, answered - began, self._remote_s)
        if answered - began - self._remote_s > self._slow_requests.slow_s:
            log_slow(self._slow_requests, request.call, queued, answered - began, self._remote_s, now - answered)
        if self.session.is_over:
            self.channel.close()
        elif throttle := self.session.throttle:
            wait_s = throttle.end(answered - began - self._remote_s, now)
            if wait_s and not (self._is_lost or self._host.is_stopping):
                self._be_muted(wait_s)

    def progressed(self) -> None:
        if self._task is None:
            self.deadline = monotonic() + self._host.idle_s

    def sent(self) -> None:
        if self._task is not None:
            return  # these were earlier answers; the present request has none yet
        request, self._request = self._request, None
        self._is_busy = False
        if request:
            self._response_sent(request, *self._times)
        if not self._is_busy:
            self._go_on()

    def wait_begins(self) -> None:
        """Leave the request queue for good: a request that waits for others is not in progress."""
        if not self._waits_since:
            self._waits_since = monotonic()
            self._leave_queue()

    def wait_ends(self) -> None:
        if self._waits_since:
            self._remote_s += monotonic() - self._waits_since
            self._waits_since = 0.0

    # ---- quotas ----

    def _worked_s(self, now: float) -> float:
        waits_s = now - self._waits_since if self._waits_since else 0.0
        return now - self._began - self._remote_s - waits_s

    def _be_muted(self, seconds: float) -> None:
        """Hold arriving data for this time, as while a request is in progress."""
        self._quotas.count_wait(seconds)
        self._is_busy = True
        self.deadline = NEVER
        self._mute = asyncio.get_running_loop().call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        if self._mute:
            self._mute.cancel()
            self._mute = None
            self._is_busy = False
            self.deadline = monotonic() + self._host.idle_s
            self._go_on()

    # ---- closing ----

    def expire(self) -> None:
        """Close the connection because its deadline has passed."""
        self.figures.count_expired()
        logger.debug("closing the connection from %s: nothing has happened for too long", self.session.host)
        self.channel.close()

    def stop(self) -> None:
        """Close the connection once all requests that have arrived completely are answered."""
        self._unmute()
        if self.is_idle:
            self.channel.close()

    def give_up(self) -> None:
        """Close the connection: its arriving request is the largest of too many bytes."""
        self._refuse("queued.max.request.bytes are arriving, and its request is the largest")

    def cut_off(self) -> None:
        """Close the connection at once and cancel its request."""
        if self._task:
            self._task.cancel()
        self.channel.close()

    def lost(self) -> None:
        self._is_lost = True
        self._unmute()
        self._queue.end_arrival(self)
        self._held = bytearray()
        self._frame = self._whole = None
        self.deadline = NEVER
        self._host.lost(self)
        if self._task is None:
            self._leave_queue()
            self._host.ended(self)
        elif self._request and self._request.translation.ends_with_connection:
            self._task.cancel()

    def _refuse(self, why: str) -> None:
        logger.info("closing the connection from %s: %s", self.session.host, why)
        self.channel.close()

    def _close_after(self, what: str, error: BaseException) -> None:
        """Close the connection and log why. A KafkaError is the client's fault, any other error the broker's."""
        if isinstance(error, KafkaError):
            self._refuse(str(error))
            return
        logger.error("closing the connection from %s: %s failed", self.session.host, what, exc_info=error)
        self.channel.close()

    # ---- request queue ----

    def _reserve(self, size: int) -> None:
        self._reserved += size
        self._queue.reserve(size)

    def _leave_queue(self) -> None:
        if self._reserved or self._is_in_queue:
            size, self._reserved = self._reserved, 0
            requests, self._is_in_queue = int(self._is_in_queue), False
            self._queue.leave(size, requests)
