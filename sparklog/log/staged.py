"""The file of a new segment while it is written, before `Log.replace` verifies it."""

from __future__ import annotations

from sparklog.base.fs import Buffer, File, Fs
from sparklog.log.disk import DiskGuard, without_room


class StagedFile:
    """A staged file, empty at first. Methods block and raise KafkaStorageError; a full disk harms only this file."""

    def __init__(self, file: File, path: str, disk: DiskGuard) -> None:
        self._file = file
        self._path = path
        self._disk = disk

    @classmethod
    def create(cls, fs: Fs, path: str, disk: DiskGuard) -> StagedFile:
        with disk, without_room(path):
            return cls(fs.open(path, create=True), path, disk)

    def append(self, data: Buffer) -> None:
        with self._disk, without_room(self._path):
            self._file.append(data)

    def close(self) -> None:
        """Close the file. Dropping the last reference to a staged file closes it, too."""
        self._file.close()
