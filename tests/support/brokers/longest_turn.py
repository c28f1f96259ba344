"""How long an event loop is kept from everybody else, in seconds of its thread's processor time: what others do on the
same machine does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time
from unittest import mock


class Longest:
    """The longest callback or step of a task so far, and what it was."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.what = ""


@contextmanager
def longest_turn(loop: asyncio.AbstractEventLoop) -> Iterator[Longest]:
    """Watches the loop until the end of the block."""
    longest = Longest()
    run = asyncio.Handle._run

    def watched(handle: asyncio.Handle) -> None:
        if handle._loop is not loop:
            return run(handle)
        began = thread_time()
        run(handle)
        if (seconds := thread_time() - began) > longest.seconds:
            longest.seconds, longest.what = seconds, repr(handle)
        return None

    with mock.patch.object(asyncio.Handle, "_run", watched):
        yield longest
