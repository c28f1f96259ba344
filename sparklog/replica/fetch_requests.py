"""The follower's half of a fetch session (`broker/fetch_sessions.py` is the leader's half).

The first request of a session names every partition; later requests name only changes. A response with session 0 means
that there is no session: the next request names every partition again. After an error or a cancelled request, the
leader's state is unknown, so a new session begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import FetchPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1


class SessionChanges(NamedTuple):
    """The session fields of one request: changed and forgotten partitions."""

    session_id: int
    session_epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[FetchPartition, ...]


class FetchSessionHandler:
    """Builds the requests of one fetch session after another (org.apache.kafka.clients.FetchSessionHandler)."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._partitions: dict[TopicPartition, FetchPartition] = {}

    def next_request(self, partitions: Mapping[TopicPartition, FetchPartition]) -> SessionChanges:
        """Return the changes after which the session has exactly these partitions."""
        if self._epoch == INITIAL_EPOCH:
            self._partitions = dict(partitions)
            return SessionChanges(self._session_id, INITIAL_EPOCH, tuple(partitions.values()), ())
        changed = tuple(part for name, part in partitions.items() if self._partitions.get(name) != part)
        forgotten = tuple(
            part
            for name, part in self._partitions.items()
            if name not in partitions or partitions[name].topic_id != part.topic_id
        )
        self._partitions = dict(partitions)
        return SessionChanges(self._session_id, self._epoch, changed, forgotten)

    def handle_response(self, session_id: int) -> None:
        """Handle a response without an error to the last request.

        session_id: the leader's session; NO_SESSION: none, so the next request names all partitions
        """
        if session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._session_id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Begin a new session: the next request names all partitions, and closes the present session, if any."""
        self._epoch = INITIAL_EPOCH
