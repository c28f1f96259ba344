"""Lines about the progress of a Spark job, while the thread that has started it waits for its result.

A job must start on the thread of its run. PySpark ties each Python thread to a thread of the JVM, which holds the job
group: a job of another thread is not in the group, and cancelling the run does not stop it. So a thread of its own
writes the lines instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_reports(describe: Callable[[], str], say: Callable[[str], None], every_s: float) -> Iterator[None]:
    """Call `say` with what `describe` returns, every `every_s` seconds, unless it is empty or the same as before."""
    ended = threading.Event()

    def watch() -> None:
        told = ""
        while not ended.wait(every_s):
            text = describe()
            if text not in ("", told):
                say(text)
            told = text

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
