"""Channels: transfer of bytes over a plain socket or TLS. `connection.py` interprets the bytes.

A channel reads into the buffer of its connection and sends one response at a time. Log slices of a large response go
from the page cache to a plain socket by sendfile(2), without a copy in this process. Over TLS they are read piece by
piece, at the pace of the peer. If the file of a slice is too short after a truncation, the connection is closed,
because the slice's length has already been sent.

While the peer does not read a response, its slices stay unread, and only the unsent rest of its other bytes is in
memory. Each connection has at most one response, which limits its memory.

Plain sockets are read and written without an asyncio transport: its sendfile cannot be mixed with other writes without
delay, and its cost per request equals all other work of a connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from sparklog.base.errors import KafkaError
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.page_cache import JOINED_BYTES, Frame, descriptor

SENDFILE_ABOVE_BYTES = 1 << 20
"""Maximum bytes of log slices in a response that is copied. If the socket accepts all of it at once, copying costs less
than sendfile, which works page by page (bench/sendfile.py). Unsent bytes are read again later, not kept."""
PIECE_BYTES = 256 << 10
"""Bytes read at once: of a slice over TLS, and of small slices that are joined."""
TOO_SHORT = "a file that was being sent has become shorter"
CORKED_BYTES = 16 << 10
"""Maximum size of a response in a common write: a copy of a larger one costs as much as a write."""
BYTES_PER_ITERATION = 4 << 20
"""Bytes sent to one peer before other connections are served."""
logger = logging.getLogger(__name__)


class ChannelOwner(Protocol):
    """Callbacks of a channel."""

    def buffer(self) -> memoryview:
        """Return the buffer of the next read, not empty. The channel fills its beginning, then calls `received`."""
        ...

    def received(self, size: int) -> None:
        """Called when `size` bytes have been read into the last buffer."""
        ...

    def end_of_input(self) -> None:
        """Called when the peer has ended its side of the connection."""
        ...

    def progressed(self) -> None:
        """Called when a part of a delayed response has been sent."""
        ...

    def sent(self) -> None:
        """Called when a delayed response has been sent completely."""
        ...

    def lost(self) -> None:
        """Called once when the channel is closed, by either side."""
        ...


class Channel(Protocol):
    """Operations of a channel for its connection."""

    def pause(self) -> None:
        """Stop reading until `resume`."""
        ...

    def resume(self) -> None:
        """Read from now on. No effect if the channel is closed."""
        ...

    def send(self, frame: Frame) -> bool:
        """Send a response. If it returns False, the rest is sent later; call `send` again only after `sent`."""
        ...

    def cork(self) -> None:
        """Keep small responses until `uncork`, for one write of them all. `close` sends them, too."""
        ...

    def uncork(self) -> bool:
        """Send the responses that were kept. If it returns False, the rest is sent later, and `sent` is called then.

        One more response may be sent meanwhile.
        """
        ...

    def close(self) -> None:
        """Close at once. Unsent bytes are lost."""
        ...


class _UnsentSlice:
    """The unsent rest of a slice."""

    __slots__ = ("left", "position", "slice")

    def __init__(self, found: LogSlice) -> None:
        self.slice = found
        self.position = found.position
        self.left = found.size

    def peek(self, limit: int) -> bytes:
        """Return the next bytes, at most `limit`. Raises KafkaStorageError, or EOFError if the file is too short."""
        part = self.slice
        try:
            data = part.file.read_at(self.position, min(self.left, limit))
        except OSError as error:
            raise part.disk.failed(error) from error
        if not data:
            raise EOFError(TOO_SHORT)
        return data

    def rest(self) -> bytes:
        """Return all that is left. Raises as `peek` does."""
        data = self.peek(self.left)
        if len(data) < self.left:
            raise EOFError(TOO_SHORT)
        return data

    def advance(self, size: int) -> None:
        self.position += size
        self.left -= size


UnsentPart = memoryview | _UnsentSlice


def _is_corkable(frame: Frame) -> bool:
    first = frame[0]
    return len(frame) == 1 and isinstance(first, bytes) and len(first) <= CORKED_BYTES


def _parts(frame: Frame) -> Iterator[UnsentPart]:
    return (_UnsentSlice(part) if isinstance(part, LogSlice) else memoryview(part) for part in frame)


def _join_small(left: deque[UnsentPart]) -> None:
    """Replace the first parts, up to a large slice or PIECE_BYTES, with one part of their bytes.

    Raises KafkaStorageError, or EOFError if a file is too short.
    """
    together: list[bytes | memoryview] = []
    size = 0
    while left and size < PIECE_BYTES:
        part = left[0]
        if isinstance(part, memoryview):
            together.append(part)
        elif part.left < JOINED_BYTES:
            together.append(part.rest())
        else:
            break
        size += len(together[-1])
        left.popleft()
    left.appendleft(memoryview(b"".join(together)))


class PlainChannel:
    """A channel over a socket without TLS. It reads from the first `resume` on. Implements Channel."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: ChannelOwner) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._owner = owner
        self._left: deque[UnsentPart] = deque()
        self._is_copied = False  # slices are copied instead of sent by sendfile
        self._is_corked = False
        self._waits_for_room = False  # the loop watches for room in the socket
        self._is_reading = False
        self._is_closed = False

    def resume(self) -> None:
        if not (self._is_reading or self._is_closed):
            self._is_reading = True
            self._loop.add_reader(self._fd, self._readable)

    def pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def cork(self) -> None:
        self._is_corked = True

    def uncork(self) -> bool:
        self._is_corked = False
        if not self._left or self._waits_for_room:
            return True
        _join_small(self._left)
        return self._send_left() or self._wait_for_room()

    def send(self, frame: Frame) -> bool:
        if self._is_corked and _is_corkable(frame):
            self._left.extend(_parts(frame))
            return True
        try:
            if not self._left and len(frame) == 1 and isinstance(frame[0], bytes):
                data = frame[0]
                try:
                    sent = self._socket.send(data)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                if sent == len(data):
                    return True
                self._left.append(memoryview(data)[sent:])
            else:
                self._left.extend(_parts(frame))
                log_bytes = sum(part.size for part in frame if isinstance(part, LogSlice))
                self._is_copied = log_bytes <= SENDFILE_ABOVE_BYTES
                if self._send_left():
                    self._stop_waiting()
                    return True
        except (OSError, EOFError, KafkaError) as error:
            self._close_after(error)
        return self._wait_for_room()

    def close(self) -> None:
        if self._is_corked:
            self.uncork()
        if self._is_closed:
            return
        self.pause()
        self._is_closed = True
        self._stop_waiting()
        self._left.clear()
        self._socket.close()
        self._owner.lost()

    def _readable(self) -> None:
        try:
            size = self._socket.recv_into(self._owner.buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if size:
            self._owner.received(size)
        else:
            self.pause()
            self._owner.end_of_input()

    def _wait_for_room(self) -> bool:
        """Send the rest later. Returns False, as the result of the caller."""
        if not (self._is_closed or self._waits_for_room):
            self._waits_for_room = True
            self._loop.add_writer(self._fd, self._writable)
        return False

    def _stop_waiting(self) -> None:
        if self._waits_for_room:
            self._waits_for_room = False
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        if self._send_left():
            self._stop_waiting()
            self._owner.sent()
        elif not self._is_closed:
            self._owner.progressed()

    def _send_left(self) -> bool:
        """Send until the socket is full; return whether all was sent. Close after an error of the peer or of a file."""
        left, allowed = self._left, BYTES_PER_ITERATION
        try:
            while left and allowed > 0:
                allowed -= self._send_some(left)
        except (BlockingIOError, InterruptedError):
            return False
        except (OSError, EOFError, KafkaError) as error:
            self._close_after(error)
            return False
        return not left

    def _close_after(self, error: Exception) -> None:
        logger.debug("a response was not sent completely: %s", error)
        self.close()

    def _send_some(self, left: deque[UnsentPart]) -> int:
        """Send from the first part, and return the number of bytes sent."""
        part = left[0]
        if isinstance(part, _UnsentSlice):
            if part.left >= JOINED_BYTES:
                return self._send_slice(left, part)
            _join_small(left)
            part = left[0]
            assert isinstance(part, memoryview)
        # MSG_MORE: the rest of the same response follows and may share packets.
        sent = self._socket.send(part, socket.MSG_MORE if len(left) > 1 else 0)
        if sent == len(part):
            left.popleft()
        else:
            left[0] = part[sent:]
        return sent

    def _send_slice(self, left: deque[UnsentPart], part: _UnsentSlice) -> int:
        fd = None if self._is_copied else descriptor(part.slice.file)
        if fd is None:
            data = part.peek(SENDFILE_ABOVE_BYTES)
            sent = self._socket.send(data, socket.MSG_MORE if len(left) > 1 else 0)
        else:
            sent = os.sendfile(self._fd, fd, part.position, min(part.left, BYTES_PER_ITERATION))
        if not sent:
            raise EOFError(TOO_SHORT)
        part.advance(sent)
        if not part.left:
            left.popleft()
        return sent


class TlsChannel(asyncio.BufferedProtocol):
    """A channel over asyncio's TLS. Implements Channel.

    `open_connection` is called after the handshake and returns the owner.
    """

    def __init__(self, open_connection: Callable[[Channel, ssl.SSLObject], ChannelOwner]) -> None:
        self._open = open_connection
        self._owner: ChannelOwner | None = None
        self._transport: asyncio.Transport | None = None
        self._left: deque[UnsentPart] = deque()
        self._is_full = False
        self._is_sending = False
        self._is_corked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._owner = self._open(self, transport.get_extra_info("ssl_object"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._owner.buffer() if self._owner else memoryview(bytearray(1024))

    def buffer_updated(self, nbytes: int) -> None:
        if self._owner:
            self._owner.received(nbytes)

    def eof_received(self) -> bool:
        if self._owner:
            self._owner.end_of_input()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._left.clear()
        owner, self._owner = self._owner, None
        if owner:
            owner.lost()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if not (self._is_sending and self._owner):
            return
        if self._send_left():
            self._is_sending = False
            self._owner.sent()
        else:
            self._owner.progressed()

    def pause(self) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.resume_reading()

    def cork(self) -> None:
        self._is_corked = True

    def uncork(self) -> bool:
        self._is_corked = False
        if not self._left or self._is_sending:
            return True
        _join_small(self._left)
        self._is_sending = not self._send_left()
        return not self._is_sending

    def send(self, frame: Frame) -> bool:
        self._left.extend(_parts(frame))
        if self._is_corked and _is_corkable(frame):
            return True
        self._is_sending = not self._send_left()
        return not self._is_sending

    def close(self) -> None:
        if self._is_corked:
            self.uncork()
        if self._transport is None or self._owner is None:
            return
        if self._is_sending:
            self._transport.abort()
        else:
            self._transport.close()  # bytes already written to it are still sent
        self.connection_lost(None)

    def _send_left(self) -> bool:
        """Write until the transport is full. Return whether all was written and the transport has room for more."""
        left = self._left
        assert self._transport
        while left and not self._is_full:
            try:
                part = left[0]
                if isinstance(part, _UnsentSlice) and part.left < JOINED_BYTES:
                    _join_small(left)
                    part = left[0]
                if isinstance(part, memoryview):
                    self._transport.write(part)
                    left.popleft()
                    continue
                data = part.peek(PIECE_BYTES)
                part.advance(len(data))
                self._transport.write(data)
            except (EOFError, KafkaError) as error:
                logger.debug("a response was not sent completely: %s", error)
                # Close later: asyncio closes a transport twice if it is closed inside `resume_writing`.
                asyncio.get_running_loop().call_soon(self.close)
                return False
            if not part.left:
                left.popleft()
        return not left and not self._is_full
