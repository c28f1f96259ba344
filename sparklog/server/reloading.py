"""Reload of changed files: certificates, users, keys of tokens.

Every CHECK_MS a thread compares inode, size and modification time of each file, with links followed, and reads a
changed file again. A file that cannot be used is logged as an error, and the old content stays in use until the file
changes again. So a file may be written in place; the rename of a complete file avoids the error.
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
    """A set of files that are read together."""

    def __init__(self, what: str, paths: Sequence[str]) -> None:
        """To be created before the files are read for the first time, so that no change is missed.

        what: the files' purpose, for the log
        """
        self.what = what
        self._paths = tuple(paths)
        self._seen = self._version()

    def check(self, reload: Callable[[], None]) -> None:
        """Call `reload` if the files have changed. `reload` raises ConfigError, without a change, for unusable files.

        Blocks.
        """
        version = self._version()
        if version == self._seen:
            return
        self._seen = version  # from before the read, so that the next check finds a change during it
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
        """Check `files`, and call `reload` in a thread after a change. Call it before `start`."""
        self._checks.append((f"reading again: {files.what}", partial(files.check, reload)))

    def start(self) -> None:
        """Check all files every CHECK_MS from now on, in threads."""
        for name, check in self._checks:
            self._schedule.every(CHECK_MS, name, partial(asyncio.to_thread, check))

    async def stop(self) -> None:
        """End the checks, without waiting for one in a thread."""
        await self._schedule.stop()


def _version_of(path: str) -> tuple[int, int, int] | None:
    """Return the identity of a file's content; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
