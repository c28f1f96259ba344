"""Channels: transfer of bytes over a plain socket or TLS. `connection.py` interprets the bytes.

A channel reads into the buffer of its connection and sends one response at a time. Large log slices go from the page
cache to a plain socket by sendfile(2), without a copy in this process (bench/sendfile.py). Small slices are sent
together with what is around them. Over TLS, large slices are read piece by piece, at the pace of the peer. If the file
of a slice is too short after a truncation, the connection is closed, because the slice's length has already been sent.

While the peer does not read a response, its slices are not in memory, only the unsent rest of its other bytes. Each
connection has at most one response, which limits its memory.

Plain sockets are read and written without an asyncio transport: its sendfile cannot be mixed with other writes without
delay, and its cost per request equals all other work of a connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sparklog.base.errors import KafkaError
from sparklog.base.fs import Buffer
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.page_cache import Frame, descriptor

SMALL_BYTES = 64 << 10
"""Slices below this size are sent together with what is around them. Responses below it may be corked."""
PIECE_BYTES = 256 << 10
"""Bytes that are sent together, and bytes that are read at once of a large slice where sendfile is not possible."""
MAX_BUFFERS = 1024
"""Maximum number of buffers of one system call (IOV_MAX)."""
TOO_SHORT = "a file that was being sent has become shorter"
BYTES_PER_ITERATION = 4 << 20
"""Bytes sent to one peer before other connections are served."""
_SIZE = struct.Struct(">i")
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

    def __len__(self) -> int:
        return self.left

    @property
    def is_large(self) -> bool:
        return self.left >= SMALL_BYTES

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

    def rest(self) -> Buffer:
        """Return all that is left. Raises as `peek` does."""
        if self.slice.data:
            return memoryview(self.slice.data)[self.position - self.slice.position :]
        data = self.peek(self.left)
        if len(data) < self.left:
            raise EOFError(TOO_SHORT)
        return data

    def advance(self, size: int) -> None:
        self.position += size
        self.left -= size


UnsentPart = memoryview | _UnsentSlice


def _is_small(frame: Frame) -> bool:
    first = frame[0]
    return isinstance(first, bytes) and _SIZE.unpack_from(first)[0] < SMALL_BYTES


class _Unsent:
    """The unsent parts of a channel's responses. None of them is empty."""

    __slots__ = ("_has_data", "_parts")

    def __init__(self) -> None:
        self._parts: deque[UnsentPart] = deque()
        self._has_data = False
        """Whether bytes of slices may be in memory."""

    def __len__(self) -> int:
        """Number of parts."""
        return len(self._parts)

    @property
    def first(self) -> UnsentPart:
        return self._parts[0]

    def add(self, frame: Frame) -> None:
        """Add the parts of a frame."""
        for part in frame:
            if isinstance(part, LogSlice):
                if part.size:
                    self._parts.append(_UnsentSlice(part))
                    self._has_data = True
            elif part:
                self._parts.append(memoryview(part))

    def gather(self) -> list[Buffer]:
        """Return the next bytes: of some parts up to a large slice, or a piece of a large slice. `remove` removes them.

        Raises KafkaStorageError, or EOFError if a file is too short.
        """
        buffers: list[Buffer] = []
        size = 0
        for part in self._parts:
            if isinstance(part, memoryview):
                buffers.append(part)
            elif part.is_large:
                return buffers or [part.peek(PIECE_BYTES)]
            else:
                buffers.append(part.rest())
            size += len(part)
            if size >= PIECE_BYTES or len(buffers) == MAX_BUFFERS:
                break
        return buffers

    def remove(self, size: int) -> None:
        """Remove the first `size` bytes."""
        parts = self._parts
        while size:
            part = parts[0]
            if size < len(part):
                if isinstance(part, _UnsentSlice):
                    part.advance(size)
                else:
                    parts[0] = part[size:]
                return
            size -= len(part)
            parts.popleft()

    def forget(self) -> None:
        """Free the bytes of slices; they are read again when they can be sent."""
        if self._has_data:
            self._has_data = False
            for part in self._parts:
                if isinstance(part, _UnsentSlice):
                    part.slice.forget()

    def clear(self) -> None:
        """Remove all parts."""
        self._parts.clear()


class PlainChannel:
    """A channel over a socket without TLS. It reads from the first `resume` on. Implements Channel."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: ChannelOwner) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._owner = owner
        self._left = _Unsent()
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
        return self._send_left() or self._wait_for_room()

    def send(self, frame: Frame) -> bool:
        if self._is_corked and _is_small(frame):
            self._left.add(frame)
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
                self._left.add((data,))
                self._left.remove(sent)
            else:
                self._left.add(frame)
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
                allowed -= self._send_some()
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, EOFError, KafkaError) as error:
            self._close_after(error)
            return False
        left.forget()
        return not left

    def _close_after(self, error: Exception) -> None:
        logger.debug("a response was not sent completely: %s", error)
        self.close()

    def _send_some(self) -> int:
        """Send from the first part on, and return the number of bytes sent."""
        left = self._left
        part = left.first
        if isinstance(part, _UnsentSlice) and part.is_large and (fd := descriptor(part.slice.file)) is not None:
            sent = os.sendfile(self._fd, fd, part.position, min(part.left, BYTES_PER_ITERATION))
            if not sent:
                raise EOFError(TOO_SHORT)
        else:
            buffers = left.gather()
            # MSG_MORE: the rest of the same response follows and may share packets.
            sent = self._socket.sendmsg(buffers, (), socket.MSG_MORE if len(left) > len(buffers) else 0)
        left.remove(sent)
        return sent


class TlsChannel(asyncio.BufferedProtocol):
    """A channel over asyncio's TLS. Implements Channel.

    `open_connection` is called after the handshake and returns the owner.
    """

    def __init__(self, open_connection: Callable[[Channel, ssl.SSLObject], ChannelOwner]) -> None:
        self._open = open_connection
        self._owner: ChannelOwner | None = None
        self._transport: asyncio.Transport | None = None
        self._left = _Unsent()
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
        self._is_sending = not self._send_left()
        return not self._is_sending

    def send(self, frame: Frame) -> bool:
        self._left.add(frame)
        if self._is_corked and _is_small(frame):
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
                buffers = left.gather()
            except (EOFError, KafkaError) as error:
                logger.debug("a response was not sent completely: %s", error)
                # Close later: asyncio closes a transport twice if it is closed inside `resume_writing`.
                asyncio.get_running_loop().call_soon(self.close)
                return False
            left.remove(sum(map(len, buffers)))
            self._transport.writelines(buffers)
        left.forget()
        return not left and not self._is_full
