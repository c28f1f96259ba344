"""A follower's half of a fetch session: what is said to the leader again, and what goes without saying.

The first request of a session names every partition; those that follow name what has changed. An answer with session 0
is one without a session: everything is named again. After an error, or a request that was given up, nobody knows what
the leader has heard, so the session begins anew (`broker/fetch_sessions.py` is the leader's half).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import FetchPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1


class Changes(NamedTuple):
    """What one request says."""

    session_id: int
    session_epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[FetchPartition, ...]


class FetchRequests:
    """The requests of one session after another."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._said: dict[TopicPartition, FetchPartition] = {}

    def next(self, wanted: Mapping[TopicPartition, FetchPartition]) -> Changes:
        """What to say so that the leader reads `wanted` and no more."""
        if self._epoch == INITIAL_EPOCH:
            self._said = dict(wanted)
            return Changes(self._session_id, INITIAL_EPOCH, tuple(wanted.values()), ())
        changed = tuple(part for name, part in wanted.items() if self._said.get(name) != part)
        forgotten = tuple(
            part for name, part in self._said.items() if name not in wanted or wanted[name].topic_id != part.topic_id
        )
        self._said = dict(wanted)
        return Changes(self._session_id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        if session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._session_id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def begin_anew(self) -> None:
        """The next request names everything; it also closes the session that there may be."""
        self._epoch = INITIAL_EPOCH
