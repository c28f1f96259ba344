"""What of a partition's folder has been flushed, beside the segments' own files: its names and its leader epochs."""

from __future__ import annotations

import posixpath

from sparklog.base.fs import Fs
from sparklog.log.checkpoints import LeaderEpochCheckpoint
from sparklog.log.epochs import LeaderEpochs


class Flushed:
    """Flushes only what has changed. Methods raise OSError."""

    def __init__(self, fs: Fs, folder: str, epochs: LeaderEpochs | None, *, have_names_changed: bool) -> None:
        """`epochs`: as they are on the disk; None: they cannot be read there."""
        self.have_names_changed = have_names_changed
        self._fs = fs
        self._folder = folder
        self._epochs = epochs

    def flush_names(self) -> None:
        """Let files that were made, renamed or removed be so after a power cut too."""
        if self.have_names_changed:
            self.have_names_changed = False
            self._fs.flush_dir(self._folder)
            self._fs.flush_dir(posixpath.dirname(self._folder))

    def flush_epochs(self, epochs: LeaderEpochs) -> None:
        """Write down the epochs of flushed records: those of others may be taken again, by other records."""
        if epochs != self._epochs:
            LeaderEpochCheckpoint(self._fs, self._folder).write(epochs)
            self._epochs = epochs
