"""`sparklog up` without sendfile: its files give no descriptor, so that fetched records are copied."""

from __future__ import annotations

import errno

from sparklog.base.fs import LocalFile
from sparklog.cli.up import command


def no_descriptor(_: LocalFile) -> int:
    raise OSError(errno.EBADF, "a descriptor is not given")


if __name__ == "__main__":
    LocalFile.fileno = no_descriptor  # type: ignore[method-assign]
    command()
