"""A TCP proxy that can lose answers: requests still arrive, and are carried out, but nobody hears of it."""

from __future__ import annotations

import contextlib
import socket
import threading

PIECE_BYTES = 1 << 16


class LossyProxy:
    """Takes connections at `address` and passes them on to `target`, until `close`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = ""
        """HOST:PORT; to be set before anybody connects."""
        self._lost = threading.Event()
        self._is_losing = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self) -> None:
        """From now on, pass on what clients send, and drop what they are answered."""
        self._lost.clear()
        self._is_losing = True

    def wait_for_loss(self, timeout: float) -> bool:
        """Wait until an answer has been lost; whether one was."""
        return self._lost.wait(timeout)

    def restore(self) -> None:
        """End all connections; those that are made now lose nothing."""
        self._is_losing = False
        for each in tuple(self._open):
            _end(each)

    def close(self) -> None:
        _end(self._listener)
        self.restore()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                host, _, port = self.target.rpartition(":")
                try:
                    broker = socket.create_connection((host, int(port)))
                except OSError:
                    client.close()
                    continue
                self._open |= {client, broker}
                threading.Thread(target=self._pass, args=(client, broker, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(broker, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, are_answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                if are_answers and self._is_losing:
                    self._lost.set()
                else:
                    target.sendall(data)
        if not (are_answers and self._is_losing):  # a client that waits for an answer waits on
            for each in (source, target):
                _end(each)
                self._open.discard(each)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
