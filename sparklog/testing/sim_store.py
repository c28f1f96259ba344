"""The store of a simulated cluster, with the SQL of the embedded store; a copy of its file can be restored."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.cluster.sqlite_tree import IN_MEMORY, SqliteTree
from sparklog.cluster.store import Operation
from sparklog.cluster.watches import Change


class SqliteNodes(SqliteTree):
    """Implements Nodes."""

    def __init__(self) -> None:
        super().__init__(IN_MEMORY, busy_timeout_s=1)

    def copy(self) -> bytes:
        """Return the bytes of the database file."""
        return self._db.serialize()

    def go_back(self, copy: bytes) -> None:
        self._db.deserialize(copy)

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[Change]:
        with self.writing():
            return super().apply(operations, session_id)
