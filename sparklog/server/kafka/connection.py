"""One client's connection (org.apache.kafka.common.network.KafkaChannel): requests are answered one by one.

A request is four bytes that say how long it is, and so many bytes. What is read first goes into a buffer that all
connections share. A request that is whole by then is served at once, from a copy; for any other a buffer of its own
size is made, into which the rest of it is read. Large ones are maps of memory, of which only what has arrived
takes any: a client that announces 100 MB and sends nothing costs nothing.

While a request is in work, or its response has not left, what arrives is held, and as soon as anything has arrived
nothing more is read: a connection holds no more than a request in work, a response, and twice the shared buffer.

    idle        nothing of a request has arrived; ends after connections.max.idle.ms
    arriving    a part of a request has; the whole must within a minute and a second more for each MiB, or within
                connections.max.idle.ms where that is shorter
    in work     no limit but those of the API
    sending     ends once the peer has taken nothing for connections.max.idle.ms: a consumer may stop reading for as
                long as it works on what it has, which is five minutes by its own defaults (max.poll.interval.ms)

A request that is served without waiting for anything needs no task: its coroutine is run to its end where the request
was found. At most `REQUESTS_PER_TURN` of one connection, then others have their turn.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import struct
from functools import partial
from time import monotonic
from typing import Any, Protocol

from sparklog.base.errors import KafkaError
from sparklog.broker.metrics import ListenerMetrics, Metrics
from sparklog.broker.node import Broker
from sparklog.runtime.eager import go_on
from sparklog.runtime.remote_waits import OBSERVER
from sparklog.server.kafka.channels import Channel, Frame
from sparklog.server.kafka.dispatch import Request, answer, read_frame
from sparklog.server.kafka.quotas import ConnectionQuotas, RequestQueue
from sparklog.server.kafka.translation import Session

SHARED_BYTES = 64 << 10
MIN_REQUEST_BYTES = 8
"""Of a header without a client id."""
REQUESTS_PER_TURN = 16
ARRIVAL_S = 60.0
ARRIVAL_BYTES_PER_S = 1 << 20
NEVER = float("inf")
_SIZE = struct.Struct(">i")
logger = logging.getLogger(__name__)


class Host(Protocol):
    """What the connections of one broker share."""

    broker: Broker
    queue: RequestQueue
    idle_s: float
    is_stopping: bool
    shared: memoryview
    """Where what arrives is read into, of SHARED_BYTES; the connections are of one event loop."""

    quotas: ConnectionQuotas
    connections: set[Connection]

    def refused(self, why: str) -> None:
        """A connection was, by a quota."""
        ...

    def lost(self, connection: Connection) -> None:
        """The connection is closed; a request of it may still be in work."""
        ...

    def ended(self, connection: Connection) -> None:
        """Nothing of the connection is left."""
        ...


class Connection:
    """From the first byte to the last. Everything happens on one event loop."""

    channel: Channel

    def __init__(self, host: Host, session: Session, figures: ListenerMetrics) -> None:
        self.session = session
        self.figures = figures
        self.deadline = monotonic() + host.idle_s
        self._host = host
        self._metrics: Metrics = host.broker.metrics
        self._queue = host.queue
        self._shared = host.shared
        self._frame: memoryview | None = None  # of the request that arrives
        self._filled = 0
        self._is_size = False  # whether what arrives is the four bytes before a request
        self._held = bytearray()
        self._held_since = 0.0
        self._is_paused = False
        self._is_busy = False  # a request is in work, or its response has not left
        self._waits_for_turn = False
        self._input_ended = False
        self._is_lost = False
        self._task: asyncio.Task[Frame] | None = None
        self._request: Request | None = None
        self._reserved = 0  # bytes of the request queue
        self._is_in_queue = False
        self._remote_s = 0.0
        self._waits_since = 0.0
        self._times = (0.0, 0.0, 0.0)  # of a response that is being sent: queued for, began, answered at

    @property
    def is_idle(self) -> bool:
        """Whether nothing that has wholly arrived is without its response."""
        return not (self._is_busy or self._held)

    # ---- what arrives ----

    def buffer(self) -> memoryview:
        return self._shared if self._frame is None else self._frame[self._filled :]

    def received(self, size: int) -> None:
        if self._frame is not None:
            self._filled += size
            if not self._is_size:
                self._reserve(size)
            if self._filled == len(self._frame):
                self._arrived(self._frame)
        elif self._is_busy or self._waits_for_turn:
            self._hold(self._shared[:size])
        else:
            self._take(self._shared[:size])

    def end_of_input(self) -> None:
        """Close, but first answer what is in work: a client may have closed its side and still read."""
        self._input_ended = True
        if not self._is_busy or (self._task and self._request and self._request.translation.ends_with_connection):
            self.channel.close()

    def _take(self, data: memoryview) -> None:
        """Serve the requests in `data`, which is used again once this returns."""
        at, end, turn = 0, len(data), REQUESTS_PER_TURN
        while at < end and not self._is_lost:
            if self._is_busy or self._must_wait(turn):
                self._hold(data[at:])
                return
            turn -= 1
            if end - at < _SIZE.size:
                self._begin(_SIZE.size, data[at:], is_size=True)
                return
            (size,) = _SIZE.unpack_from(data, at)
            at += _SIZE.size
            if not self._accepts(size):
                return
            if end - at < size:
                self._begin(size, data[at:])
                return
            self._serve(memoryview(bytearray(data[at : at + size])))
            at += size

    def _begin(self, size: int, start: memoryview, *, is_size: bool = False) -> None:
        """Make the buffer of a request (or of its size) of which `start` has arrived."""
        try:
            self._frame = memoryview(bytearray(size) if size <= SHARED_BYTES else mmap.mmap(-1, size))
        except (OSError, MemoryError):
            self._refuse(f"there is no memory for a request of {size} bytes")
            return
        self._frame[: len(start)] = start
        self._filled = len(start)
        self._is_size = is_size
        if not is_size:
            self._reserve(len(start))
        allowed = min(ARRIVAL_S, self._host.idle_s) + size / ARRIVAL_BYTES_PER_S
        self.deadline = monotonic() + allowed

    def _arrived(self, frame: memoryview) -> None:
        self._frame = None
        if not self._is_size:
            self._serve(frame)
            return
        (size,) = _SIZE.unpack(frame)
        if self._accepts(size):
            self._begin(size, frame[:0])

    def _accepts(self, size: int) -> bool:
        least = 1 if self.session.opaque else MIN_REQUEST_BYTES
        if least <= size <= self.session.max_request_bytes:
            return True
        self._refuse(f"a request of {size} bytes, where {self.session.max_request_bytes} are allowed")
        return False

    def _must_wait(self, turn: int) -> bool:
        """Whether the next request must: for a place among those in work, or for other connections' turn."""
        if self._queue.is_full:
            self._queue.wait(self._go_on)
        elif turn == 0:
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            return False
        self._waits_for_turn = True
        return True

    def _hold(self, data: memoryview) -> None:
        """Keep what cannot be served yet, and read nothing more until it is."""
        if not self._held:
            self._held_since = monotonic()
        self._held += data
        self.deadline = NEVER
        if not self._is_paused:
            self._is_paused = True
            self.channel.pause()

    def _go_on(self) -> None:
        """Serve what was held, then read on."""
        self._waits_for_turn = False
        if self._is_lost:
            return
        if self._held:
            held, self._held = self._held, bytearray()
            self._take(memoryview(held))
        if self._is_lost or self._held or self._is_busy:
            return
        if self._input_ended or self._host.is_stopping:
            self.channel.close()
        elif self._is_paused:
            self._is_paused = False
            self.channel.resume()

    # ---- what is done with it ----

    def _serve(self, frame: memoryview) -> None:
        """Answer one request: at once, or in a task where it has to wait."""
        began = monotonic()
        queued, self._held_since = (began - self._held_since if self._held_since else 0.0), 0.0
        try:
            request = read_frame(self._host.broker, self.session, frame)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this connection and no other
            self._failed("reading a request", error)
            return
        self._remote_s = self._waits_since = 0.0
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
            self._failed(request.translation.api.name, error)
            return
        self._begin_task(request, work, waits_for, len(frame), queued, began)

    def _begin_task(self, request: Request, work: Any, waits_for: Any, size: int, queued: float, began: float) -> None:
        if not self._waits_since:
            if not self._reserved:
                self._reserve(size)
            self._queue.enter()
            self._is_in_queue = True
        self._is_busy = True
        self.deadline = NEVER
        self._request = request
        self._task = asyncio.get_running_loop().create_task(go_on(work, waits_for))
        self._task.add_done_callback(partial(self._answered, request, queued, began))

    def _answered(self, request: Request, queued: float, began: float, task: asyncio.Task[Frame]) -> None:
        self._task = self._request = None
        self._is_busy = False
        if task.cancelled():
            self.channel.close()
        elif error := task.exception():
            self._failed(request.translation.api.name, error)
        elif not self._is_lost:
            self._send(request, task.result(), queued, began)
        self._leave_queue()
        if self._is_lost:
            self._host.ended(self)
        elif not self._is_busy:
            self._go_on()

    def _send(self, request: Request, frame: Frame, queued: float, began: float) -> None:
        answered = monotonic()
        if frame and not self.channel.send(frame):
            self._is_busy = True
            self._request = request
            self._times = (queued, began, answered)
            self.deadline = answered + self._host.idle_s
            return
        self._done(request, queued, began, answered)

    def _done(self, request: Request, queued: float, began: float, answered: float) -> None:
        now = monotonic()
        self.deadline = now + self._host.idle_s
        stages = self._metrics.stages[request.translation.api.name]
        stages.observe(queued, answered - began, self._remote_s, now - answered)
        if self.session.is_over:
            self.channel.close()

    def progressed(self) -> None:
        self.deadline = monotonic() + self._host.idle_s

    def sent(self) -> None:
        request, self._request = self._request, None
        self._is_busy = False
        if request:
            self._done(request, *self._times)
        self._go_on()

    def wait_begins(self) -> None:
        """A request that waits for others is not in work: it gives its place away, for good."""
        if not self._waits_since:
            self._waits_since = monotonic()
            self._leave_queue()

    def wait_ends(self) -> None:
        if self._waits_since:
            self._remote_s += monotonic() - self._waits_since
            self._waits_since = 0.0

    # ---- how it ends ----

    def expire(self) -> None:
        """The deadline has passed."""
        self.figures.expired += 1
        logger.debug("closing the connection from %s: nothing has happened for too long", self.session.host)
        self.channel.close()

    def stop(self) -> None:
        """Close, as soon as what has wholly arrived is answered."""
        if self.is_idle:
            self.channel.close()

    def cut_off(self) -> None:
        """Close at once, whatever is in work."""
        if self._task:
            self._task.cancel()
        self.channel.close()

    def lost(self) -> None:
        self._is_lost = True
        self._held = bytearray()
        self._frame = None
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

    def _failed(self, what: str, error: BaseException) -> None:
        """A KafkaError is the client's fault, anything else is ours."""
        if isinstance(error, KafkaError):
            self._refuse(str(error))
            return
        logger.error("closing the connection from %s: %s failed", self.session.host, what, exc_info=error)
        self.channel.close()

    # ---- its share of the requests in work ----

    def _reserve(self, size: int) -> None:
        self._reserved += size
        self._queue.reserve(size)

    def _leave_queue(self) -> None:
        if self._reserved or self._is_in_queue:
            size, self._reserved = self._reserved, 0
            requests, self._is_in_queue = int(self._is_in_queue), False
            self._queue.leave(size, requests)
