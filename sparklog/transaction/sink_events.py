"""What sinks ask of the shell, and what they are told later."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.transaction.sink_changes import SinkMarkers


class SendSinkMarkers(Struct, frozen=True, kw_only=True):
    """Effect: write all markers, and report them to `markers_written`."""

    sink_id: str
    markers: Sequence[SinkMarkers]

    @property
    def transactional_id(self) -> str:
        """The sink's id, under the name that effects of producers have for theirs."""
        return self.sink_id


class SinkChanged(Struct, frozen=True, kw_only=True):
    """Event: the record of a change is committed, or has failed."""

    sink_ids: Sequence[str]
    is_extension: bool = False
    """A task attempt or a partition joined the batch."""


class SinkTimer(Struct, frozen=True, kw_only=True):
    """Timer: look whether a prepared batch has to be written again."""

    sink_id: str
