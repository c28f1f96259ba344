"""The coordinator of a group or transactional id. It is looked up on first use, and again after an error that shows
that another broker coordinates now.

`ask` makes one attempt, and forgets a coordinator that turns out to be wrong. The caller handles the answer's own
`error` and retries, because not all calls may be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any

from sparklog.base.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    NetworkException,
    NotCoordinator,
    RequestTimedOut,
)
from sparklog.base.message_mapping import read_error
from sparklog.client.cluster import LEARNING_TIMEOUT_MS, Cluster
from sparklog.client.connection import Connection, raise_error_of
from sparklog.client.retry import retrying
from sparklog.v1 import groups_pb2, transactions_pb2

_ELSEWHERE = (NetworkException, NotCoordinator, CoordinatorNotAvailable, RequestTimedOut)


class Coordinator:
    """The coordinator of one group or transactional id."""

    def __init__(self, cluster: Cluster, group_id: str, *, is_transactional: bool = False) -> None:
        """is_transactional: whether `group_id` is a transactional id"""
        self.cluster = cluster
        self.group_id = group_id
        self._is_transactional = is_transactional
        self._connection: Connection | None = None

    async def ask(self, method: str, request: Any, timeout_ms: float, *, service: str = "groups") -> Any:
        """Make one attempt and return the answer; the caller handles the answer's own `error`, if it has one.

        service: the attribute of Connection that has the method.
        """
        try:
            connection = self._connection or await self._find()
            answer = await connection.call(getattr(getattr(connection, service), method), request, timeout_ms)
        except KafkaError as error:
            self.forget_if_wrong(error)
            raise
        if "error" in answer.DESCRIPTOR.fields_by_name:
            self.forget_if_wrong(read_error(answer))
        return answer

    async def ask_until(self, method: str, request: Any, timeout_ms: int, *, service: str = "groups") -> Any:
        """Return an answer without any error in it; retry for `timeout_ms` while errors are retriable."""

        async def attempt() -> Any:
            answer = await self.ask(method, request, self.cluster.config.request_timeout_ms, service=service)
            for result in _results(answer):
                self.forget_if_wrong(read_error(result))
                raise_error_of(result)
            return answer

        return await retrying(attempt, timeout_ms=timeout_ms, backoff=self.cluster.backoff, clock=self.cluster.clock)

    def forget_if_wrong(self, error: KafkaError | None) -> None:
        """Forget the coordinator if `error` shows that another broker coordinates now, or that it does not answer."""
        if isinstance(error, _ELSEWHERE):
            self._connection = None
            self.cluster.doubt()

    async def _find(self) -> Connection:
        limit_ms = min(self.cluster.config.request_timeout_ms, LEARNING_TIMEOUT_MS)

        def ask(broker: Connection) -> Awaitable[Any]:
            if self._is_transactional:
                named = transactions_pb2.FindTransactionCoordinatorRequest(transactional_ids=[self.group_id])
                return broker.call(broker.transactions.FindCoordinator, named, limit_ms)
            request = groups_pb2.FindCoordinatorRequest(group_ids=[self.group_id])
            return broker.call(broker.groups.FindCoordinator, request, limit_ms)

        [found] = (await self.cluster.any_broker(ask)).coordinators
        raise_error_of(found)
        self._connection = self.cluster.connections.get(found.grpc_address)
        return self._connection


def _results(answer: Any) -> Iterator[Any]:
    """Yield the parts of an answer that may have an error: the answer itself, and its groups, members or partitions."""
    for name, field in answer.DESCRIPTOR.fields_by_name.items():
        if name == "error":
            yield answer
        elif field.message_type is not None and "error" in field.message_type.fields_by_name:
            yield from getattr(answer, name)
