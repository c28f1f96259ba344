"""The cluster store of a simulation in the SQLite tables of the embedded store, kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from sparklog.cluster.sqlite_tree import IN_MEMORY, SqliteTree
from sparklog.cluster.store import Operation
from sparklog.cluster.watches import Change


class SqliteNodes(SqliteTree):
    """An implementation of Nodes: the embedded store's SQL on a database in memory."""

    @classmethod
    def create(cls) -> Self:
        """Return an empty tree."""
        return cls.open(IN_MEMORY, busy_timeout_s=1)

    def copy(self) -> bytes:
        """Return the database as the bytes of its file."""
        return self._db.serialize()

    def go_back(self, copy: bytes) -> None:
        """Replace the database with a copy of its earlier state."""
        self._db.deserialize(copy)

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[Change]:
        with self.writing():
            return super().apply(operations, session_id)
