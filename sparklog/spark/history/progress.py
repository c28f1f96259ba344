"""The progress of a Delta table in each partition of a topic, as transaction identifiers of Delta's protocol (`txn`).

The identifiers survive OPTIMIZE, VACUUM and checkpoints. Reading them takes the table's newest checkpoint and the
commits since, never its records:

    sparklog/<topic>-<n>              the offset up to which the table has the partition
    sparklog/<topic>-<n>/from         the offset from which the table has it
    sparklog/<topic>-<n>/<topic id>   the table has this topic, not another one of that name
    sparklog/<topic>-<n>/epoch        the leader epoch of the last offset. If the log has another epoch there, it has
                                      lost records that the table has
    sparklog/<topic>-<n>/gaps         how many gaps the table has between these offsets: records that were deleted
                                      before they could be copied
    sparklog/<topic>-<n>/gap/<i>/from, /to    the offset at which the gap i, counted from 0, begins, and that behind it

Of two writers that advance the same partition from the same state, Delta refuses the second commit.
"""

from __future__ import annotations

from typing import NamedTuple

from deltalake import DeltaTable, Transaction

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import LogDescription
from sparklog.log.epochs import NO_EPOCH, LeaderEpochs

_APP = "sparklog"
_EDGES = ("from", "to")


class TableRange(NamedTuple):
    """Offsets of a partition that the table has: from `offset_from` to before `offset_to`."""

    offset_from: int
    offset_to: int


class Progress(NamedTuple):
    """Progress of a partition after a commit."""

    topic_id: str
    archived: TableRange
    leader_epoch: int = NO_EPOCH
    """Leader epoch of the offset before `archived.offset_to`."""
    gap: TableRange | None = None
    """Offsets that were deleted before this commit could have them, behind those of the commit before."""


def progress_of(log: LogDescription, offset_from: int, offset_to: int) -> Progress:
    """Return the progress of a table that has these offsets of a log."""
    epoch = LeaderEpochs(log.epochs).epoch_at(offset_to - 1)
    return Progress(log.topic_id, TableRange(offset_from, offset_to), epoch)


class TableProgress:
    """The progress that a table had when it was loaded."""

    def __init__(self, table: DeltaTable, name: str, advice: str) -> None:
        """name: the table in error messages; advice: the remedy in errors about a table that holds other records."""
        self._table = table
        self._name = name
        self._advice = advice

    def archived(self, partition: TopicPartition, topic_id: str = "") -> TableRange | None:
        """Return the offsets of a partition that the table has; None if it has none.

        Raises ConfigError if they are of another topic of that name; without `topic_id` that is not checked.
        """
        name = f"{_APP}/{partition}"
        offset_to = self._table.transaction_version(name)
        if offset_to is None:
            return None
        if topic_id and self._table.transaction_version(f"{name}/{topic_id}") is None:
            raise ConfigError(f"{self._name} holds {partition} of an earlier topic of that name; {self._advice}")
        return TableRange(self._table.transaction_version(f"{name}/from") or 0, offset_to)

    def gaps(self, partition: TopicPartition) -> list[TableRange]:
        """Return the offsets that the table lacks between those that it has, because they were deleted too early."""
        name = f"{_APP}/{partition}"
        count = self._table.transaction_version(f"{name}/gaps") or 0
        edges = [[self._table.transaction_version(f"{name}/gap/{i}/{edge}") for edge in _EDGES] for i in range(count)]
        return [TableRange(*each) for each in edges]

    def archived_of(self, log: LogDescription) -> TableRange | None:
        """Return the offsets of a log that the table has; None if it has none.

        Raises ConfigError if the table has another topic of that name, or records that the log has lost. A log loses
        records if a broker loses unflushed data, or by an unclean election; other records take their place.
        """
        archived = self.archived(log.partition, log.topic_id)
        if archived and (reason := self._loss(log, archived.offset_to)):
            raise ConfigError(
                f"{self._name} holds {log.partition} up to {archived.offset_to}, but {reason}: the log has lost "
                f"records, and what takes their place would be missing; {self._advice}"
            )
        return archived

    def transactions(self, partition: TopicPartition, to: Progress) -> list[Transaction]:
        """Return the transaction identifiers of a commit after which the table has this progress."""
        name = f"{_APP}/{partition}"
        moved = [Transaction(name, to.archived.offset_to)]
        if self._table.transaction_version(name) is None:
            moved.append(Transaction(f"{name}/{to.topic_id}", 0))
        if self._table.transaction_version(f"{name}/from") != to.archived.offset_from:
            moved.append(Transaction(f"{name}/from", to.archived.offset_from))
        if to.leader_epoch != NO_EPOCH:
            moved.append(Transaction(f"{name}/epoch", to.leader_epoch))
        if to.gap is not None:
            count = self._table.transaction_version(f"{name}/gaps") or 0
            moved.append(Transaction(f"{name}/gaps", count + 1))
            moved += [
                Transaction(f"{name}/gap/{count}/{edge}", offset) for edge, offset in zip(_EDGES, to.gap, strict=True)
            ]
        return moved

    def _loss(self, log: LogDescription, offset_to: int) -> str:
        """Return the evidence that the log has lost records that the table has; empty if there is none."""
        if offset_to > log.log_end_offset:
            return f"the log ends at {log.log_end_offset}"
        before = self._table.transaction_version(f"{_APP}/{log.partition}/epoch")
        now = LeaderEpochs(log.epochs).epoch_at(offset_to - 1)
        if before is not None and now not in (NO_EPOCH, before):
            return f"offset {offset_to - 1} is of leader epoch {now} in the log, and of {before} in the table"
        return ""
