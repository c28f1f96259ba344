"""Makes processes that kill themselves while they replace segments.

A program: `python -m support.logs.killed_replacement DIRECTORY`.

For each step of a replacement, so many changes of the disk after its beginning, it forks a child, which writes a log
in DIRECTORY/<step>, begins to replace segments 9, 18 and 27, and gets SIGKILL from itself before that change. Its
parent says on standard output:

    killed STEP                       the child has died in the middle
    done STEP                         the replacement ended before so many changes; this was the last child
"""

from __future__ import annotations

import os
import signal
import sys

from crc32c import crc32c

from sparklog.base.fs import Buffer, LocalFile, LocalFs
from support.logs.replacements import cleaned, content_of, stage, written


class Countdown:
    """Kills the process at a change of the disk."""

    def __init__(self) -> None:
        self.left: int | None = None

    def change(self) -> None:
        """Something is about to change."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


class DyingFile(LocalFile):
    """A file whose process may die with a write."""

    __slots__ = ("countdown",)
    countdown: Countdown

    def append(self, data: Buffer) -> None:
        self.countdown.change()
        super().append(data)

    def truncate(self, size: int) -> None:
        self.countdown.change()
        super().truncate(size)


class DyingFs(LocalFs):
    """The file system of this machine, for a process that may die at any change."""

    def __init__(self, countdown: Countdown) -> None:
        self.countdown = countdown

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        self.countdown.change()
        file = DyingFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644))
        file.countdown = self.countdown
        return file

    def rename(self, source: str, target: str) -> None:
        self.countdown.change()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.countdown.change()
        super().remove(path)


def live(folder: str, step: int) -> None:
    """One child's life."""
    countdown = Countdown()
    fs = DyingFs(countdown)
    log = written(fs, folder=folder)
    sources = log.replacer.describe()[1:4]
    data = cleaned(content_of(fs, sources, folder))
    stage(fs, log, 9, data)
    countdown.left = step
    log.replacer.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=log.log_end_offset)
    log.delete_expired(10**9)
    countdown.left = None


def main(directory: str) -> None:
    for step in range(1000):
        child = os.fork()
        if child == 0:
            live(f"{directory}/{step}/orders-0", step)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            print("done" if os.WEXITSTATUS(status) == 0 else "failed", step, flush=True)
            return
        print("killed", step, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
