"""Ownership of log directories: the cluster and the broker named in each directory's `meta.properties`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from uuid import UUID

from sparklog.base.errors import ConfigError
from sparklog.base.ids import encode_id
from sparklog.log.directory.checkpoints import CorruptCheckpoint, MetaProperties
from sparklog.log.directory.directory import LogDirectory


class Ownership:
    """The ownership of a broker's directories. Thread-safe; methods wait for the disk."""

    def __init__(
        self,
        live: Callable[[], Iterable[LogDirectory]],
        guard: Callable[[LogDirectory], AbstractContextManager[None]],
        broker_id: int,
        new_id: Callable[[], UUID],
    ) -> None:
        """live: returns the working directories. guard: marks a directory as failed after an OSError in its block."""
        self._live = live
        self._guard = guard
        self._broker_id = broker_id
        self._new_id = new_id

    def find_cluster_id(self) -> str | None:
        """Return the id of the cluster that the directories belong to; None if none of them names one.

        Raises ConfigError if they belong to different clusters or to another broker.
        """
        found = {meta.cluster_id for meta in self._read().values() if meta and meta.cluster_id}
        if len(found) > 1:
            raise ConfigError(f"the log directories belong to different clusters: {', '.join(sorted(found))}")
        return next(iter(found), None)

    def claim(self, cluster_id: str) -> None:
        """Write this broker and the cluster as owner into each directory that has no owner or no directory id.

        Raises ConfigError as `find_cluster_id` does, and if they belong to another cluster.
        """
        owner = self.find_cluster_id()
        if owner not in (None, cluster_id):
            raise ConfigError(f"the log directories belong to cluster {owner}, not to {cluster_id}")
        for directory, meta in self._read().items():
            if meta is None or not meta.directory_id:
                with self._guard(directory):
                    directory.write_meta(
                        MetaProperties(
                            broker_id=self._broker_id, cluster_id=cluster_id, directory_id=encode_id(self._new_id())
                        )
                    )

    @property
    def directory_id(self) -> str:
        """The id of the first working directory with an owner; empty if there is none."""
        return next((meta.directory_id for meta in self._read().values() if meta), "")

    def _read(self) -> dict[LogDirectory, MetaProperties | None]:
        metas: dict[LogDirectory, MetaProperties | None] = {}
        for directory in self._live():
            with self._guard(directory):
                try:
                    meta = metas[directory] = directory.read_meta()
                except CorruptCheckpoint as error:
                    raise ConfigError(
                        f"{error}. The file says whose the log directory is: restore it; or, if the directory is that "
                        f"of broker {self._broker_id}, remove it, and it is written again"
                    ) from None
                if meta and meta.broker_id != self._broker_id:
                    raise ConfigError(
                        f"log directory {directory.path} belongs to broker {meta.broker_id}, "
                        f"not to {self._broker_id} (broker.id)"
                    )
        return metas
