"""Files that apply without a restart: certificates, users, keys of tokens.

Every CHECK_MS a thread looks whether a file is another one, or has another size or time of modification; links are
followed. Then it is read again. One that cannot be used is logged as an error, and what was read before stays in use
until the file changes again. So a file may be replaced in place; to rename a complete file over it spares the error.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial

from sparklog.base.errors import ConfigError
from sparklog.runtime.schedule import PeriodicTasks

CHECK_MS = 2_000
logger = logging.getLogger(__name__)
Version = tuple[tuple[int, int, int] | None, ...]


class ReloadedFiles:
    """One set of files that is read as a whole."""

    def __init__(self, what: str, paths: Sequence[str]) -> None:
        """Create it before the files are read for the first time, so that no change is missed.

        what: the files' purpose, for the log
        """
        self.what = what
        self._paths = tuple(paths)
        self._seen = self._version()

    def check(self, reload: Callable[[], None]) -> None:
        """Call `reload` if the files have changed. It raises ConfigError, and changes nothing, if it cannot use them.

        Blocks.
        """
        version = self._version()
        if version == self._seen:
            return
        self._seen = version  # of before the reading: a change meanwhile is seen by the next check
        try:
            reload()
        except ConfigError as error:
            logger.error("%s stay as they were, because a file has changed to one of no use: %s", self.what, error)
        else:
            logger.info("%s were read again: %s", self.what, ", ".join(self._paths))

    def _version(self) -> Version:
        return tuple(map(_version_of, self._paths))


class Reloader:
    """Checks files from `start` to `stop`. Used on one event loop."""

    def __init__(self) -> None:
        self._schedule = PeriodicTasks()
        self._checks: list[tuple[str, Callable[[], None]]] = []

    def add(self, files: ReloadedFiles, reload: Callable[[], None]) -> None:
        """Have `files` checked, and read by `reload` in a thread. Call it before `start`."""
        self._checks.append((f"reading again: {files.what}", partial(files.check, reload)))

    def start(self) -> None:
        """Check all files every CHECK_MS from now on, in threads."""
        for name, check in self._checks:
            self._schedule.every(CHECK_MS, name, partial(asyncio.to_thread, check))

    async def stop(self) -> None:
        """Check no more; a check under way in a thread is not waited for."""
        await self._schedule.stop()


def _version_of(path: str) -> tuple[int, int, int] | None:
    """Return what tells a file from another; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
