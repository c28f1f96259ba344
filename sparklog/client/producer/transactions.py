"""The transactions of one producer: which state they are in, and what ends them (KIP-98, protocol 2 of KIP-890).

    begin ─▶ OPEN ──commit──▶ READY            the first `begin` gets the producer's id and epoch
              │                 ▲
              └─ a record, or offsets, could not be written ─▶ FAILED ──abort──┘
    fenced, or unknown to the coordinator ─▶ FENCED: the producer is of no more use

Each end of a transaction gives the producer its next epoch, under which sequence numbers begin with 0. So a request
that was delayed cannot join a later transaction. As org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from sparklog.base.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    SparklogError,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
)
from sparklog.client.cluster import Cluster
from sparklog.client.commits import GroupMetadata, Offsets, offset_messages, with_metadata
from sparklog.client.config import ProducerConfig
from sparklog.client.connection import raise_error_of
from sparklog.client.coordinator import Coordinator
from sparklog.client.producer.batches import NOBODY, Identity
from sparklog.client.retry import retrying
from sparklog.v1 import log_pb2, transactions_pb2

_FENCED = (
    ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState, TransactionalIdAuthorizationFailed,
)  # fmt: skip


class State(Enum):
    READY = "no transaction is open: call begin() first"
    OPEN = "a transaction is open"
    FAILED = "the transaction has failed: call abort()"
    FENCED = "the producer is fenced"


class TransactionManager:
    """The transactions of one producer. Used on its event loop, except `check_sending`."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, on_new_identity: Callable[[], None]) -> None:
        """on_new_identity: called when batches must be numbered anew."""
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.identity = NOBODY
        self._cluster = cluster
        self._config = config
        self._on_new_identity = on_new_identity
        self._coordinator = Coordinator(cluster, self.transactional_id, is_transactional=True)
        self._state = State.READY
        self._error: SparklogError | None = None
        """Why the transaction has failed, or the producer is fenced."""
        self._is_begun = False
        """Whether the brokers may know of the open transaction."""

    @property
    def has_failed(self) -> bool:
        return self._state in (State.FAILED, State.FENCED)

    def check_sending(self) -> None:
        """Raise unless a transaction is open. Any thread."""
        if self._state is not State.OPEN:
            raise self._refusal()

    def check_open(self) -> None:
        """Raise InvalidTxnState unless there is a transaction to end, ProducerFenced if the producer is fenced."""
        if self._state in (State.READY, State.FENCED):
            raise self._refusal()

    def sent(self) -> None:
        """Note that batches are sent in the transaction."""
        self._is_begun = True

    def failed(self, error: SparklogError) -> None:
        """Note that a record could not be written: the transaction can only be aborted."""
        if self._state is State.OPEN:
            self._state, self._error = State.FAILED, error

    async def begin(self) -> None:
        """Begin a transaction; get the producer's id first, if it has none.

        Raises InvalidTxnState if one is open, ProducerFenced, or the KafkaError that `default_api_timeout_ms` left.
        """
        if self._state is not State.READY:
            raise self._refusal() if self.has_failed else InvalidTxnState("a transaction is open already")
        if self.identity == NOBODY:
            request = log_pb2.InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self._config.transaction_timeout_ms
            )
            given = await self._ask("InitProducerId", request, "log")
            self.identity = Identity(given.producer_id, given.producer_epoch, True)
        self._state, self._error, self._is_begun = State.OPEN, None, False

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit offsets in the open transaction.

        Raises InvalidTxnState without one. Any other error leaves a transaction that can only be aborted.
        """
        self.check_sending()
        if not offsets:
            return
        self.sent()
        request = transactions_pb2.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group.group_id,
            generation=group.generation if group.generation >= 0 else None,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            offsets=offset_messages(with_metadata(offsets), {}),
        )
        coordinator = Coordinator(self._cluster, group.group_id)
        try:
            await coordinator.ask_until(
                "TxnOffsetCommit", request, self._config.default_api_timeout_ms, service="transactions"
            )
        except KafkaError as error:
            self.failed(error)
            raise

    async def commit(self) -> None:
        """Commit the transaction, whose records are all acknowledged.

        Raises TransactionAbortable if it has failed, ProducerFenced, or the KafkaError that `default_api_timeout_ms`
        left: the outcome is unknown then, and may be asked for again by another commit.
        """
        if self._state is State.FAILED:
            raise TransactionAbortable(f"the transaction can only be aborted: {self._error}")
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """Abort the transaction, of which nothing is sent any more. Raises as `commit` does."""
        await self._end(is_commit=False)

    async def _end(self, *, is_commit: bool) -> None:
        if self._is_begun:
            request = transactions_pb2.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                commit=is_commit,
            )
            given = await self._ask("EndTxn", request, "transactions")
            self.identity = Identity(given.producer_id, given.producer_epoch, True)
        self._state, self._is_begun = State.READY, False
        self._on_new_identity()

    async def _ask(self, method: str, request: Any, service: str) -> Any:
        """Return the coordinator's answer; retry until `default_api_timeout_ms`. Raises KafkaError."""

        async def attempt() -> Any:
            answer = await self._coordinator.ask(method, request, self._config.request_timeout_ms, service=service)
            raise_error_of(answer)
            return answer

        ask: Callable[[], Awaitable[Any]] = attempt
        try:
            return await retrying(
                ask,
                timeout_ms=self._config.default_api_timeout_ms,
                backoff=self._cluster.backoff,
                clock=self._cluster.clock,
            )
        except _FENCED as error:
            self._state, self._error = State.FENCED, error
            raise self._refusal() from error

    def _refusal(self) -> KafkaError:
        if self._state is State.FENCED:
            return ProducerFenced(
                f"the producer with transactional_id = {self.transactional_id!r} cannot go on: another one with this "
                f"id has started, or its transaction has exceeded transaction_timeout_ms. Close it. ({self._error})"
            )
        if self._state is State.FAILED:
            return TransactionAbortable(f"the transaction can only be aborted: {self._error}")
        return InvalidTxnState(self._state.value)
