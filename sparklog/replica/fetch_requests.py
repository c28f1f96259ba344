"""The follower's half of a fetch session (`broker/fetch_sessions.py` is the leader's half).

The first request of a session names every partition; later requests name only changes. A response with session 0 means
that there is no session: the next request names every partition again. After an error or a cancelled request, the
leader's state is unknown, so a new session begins.

Between two requests, `want` and `drop` say which partitions the session shall have. A request costs time for these, and
nothing for the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
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


class WantedPartition(NamedTuple):
    """A partition of a session."""

    place: int
    """A request names partitions in ascending order of their places."""
    fetch: FetchPartition


class FetchSessionHandler:
    """Builds the requests of one fetch session after another (org.apache.kafka.clients.FetchSessionHandler)."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[TopicPartition, WantedPartition] = {}
        self._before: dict[TopicPartition, WantedPartition | None] = {}
        """What the last request left in the session, for each partition that `want` or `drop` has named since."""

    def __len__(self) -> int:
        """Number of partitions that the next request fetches."""
        return len(self._wanted)

    @property
    def is_new(self) -> bool:
        """Whether the next request begins a session, and names all partitions."""
        return self._epoch == INITIAL_EPOCH

    def find(self, name: TopicPartition) -> FetchPartition | None:
        """Return how the session fetches the partition; None if it does not."""
        wanted = self._wanted.get(name)
        return wanted.fetch if wanted else None

    def want(self, place: int, fetch: FetchPartition) -> None:
        """Fetch a partition in this way from the next request on."""
        self._before.setdefault(fetch.name, self._wanted.get(fetch.name))
        self._wanted[fetch.name] = WantedPartition(place, fetch)

    def drop(self, name: TopicPartition) -> None:
        """Do not fetch the partition from the next request on."""
        if wanted := self._wanted.pop(name, None):
            self._before.setdefault(name, wanted)

    def next_request(self) -> SessionChanges:
        """Return the changes after which the session has exactly the wanted partitions."""
        changed: list[WantedPartition] = []
        forgotten: list[WantedPartition] = []
        if self.is_new:
            changed.extend(self._wanted.values())
            self._before.clear()
        for name, before in self._before.items():
            now = self._wanted.get(name)
            if now and (before is None or before.fetch != now.fetch):
                changed.append(now)
            if before and (now is None or before.fetch.topic_id != now.fetch.topic_id):
                forgotten.append(before)
        self._before.clear()
        return SessionChanges(self._session_id, self._epoch, _in_order(changed), _in_order(forgotten))

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


def _in_order(partitions: Iterable[WantedPartition]) -> tuple[FetchPartition, ...]:
    return tuple(each.fetch for each in sorted(partitions, key=attrgetter("place")))
