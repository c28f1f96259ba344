"""The transactions of one producer: their states and transitions (KIP-98, protocol 2 of KIP-890).

    READY ──begin──▶ OPEN ──commit──▶ COMMITTING ──▶ READY      the first `begin` gets the producer's id and epoch
                      │                   │
                      │                   └─ it has run out of time ─┐
                      ├─ a record, or offsets, failed ───────────────┴▶ FAILED
                      └─abort──▶ ABORTING ──▶ READY                        │
                                    ▲──────────────────abort───────────────┘
    any state ──fenced, or refused by the coordinator──▶ FENCED: final

The accumulator takes records only in OPEN. COMMITTING and ABORTING last until the answer of the coordinator: after a
time-out the outcome is unknown, and only the same call may be repeated.

Each end of a transaction gives the producer its next epoch, under which sequence numbers begin with 0. So a delayed
request cannot join a later transaction. As org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from sparklog.base.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
    RetriableError,
    SparklogError,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
)
from sparklog.client.cluster import Cluster
from sparklog.client.commits import GroupMetadata, Offsets, offset_messages
from sparklog.client.config import ProducerConfig
from sparklog.client.connection import raise_error_of
from sparklog.client.coordinator import Coordinator
from sparklog.client.producer.accumulator import Accumulator
from sparklog.client.producer.batches import NO_IDENTITY, ProducerIdentity
from sparklog.client.retry import retrying
from sparklog.v1 import log_pb2, transactions_pb2

logger = logging.getLogger(__name__)

_FATAL: dict[type[KafkaError], str] = {
    ProducerFenced: "another one with this id has started",
    InvalidProducerEpoch: "another one with this id has started",
    InvalidProducerIdMapping: "the cluster does not know it any more, as after transactional.id.expiration.ms",
    InvalidTxnState: "the coordinator knows its transaction otherwise",
    TransactionalIdAuthorizationFailed: "it has no right to use this id",
}
"""Errors of the coordinator that fence the producer, and the meaning of each."""


class ProducerTransactionState(Enum):
    READY = "no transaction is open: call begin() first"
    OPEN = "a transaction is open already: commit or abort it first"
    COMMITTING = "a transaction is being committed: call commit() again if that has failed, as its outcome is not known"
    ABORTING = "a transaction is being aborted: call abort() again if that has failed"
    FAILED = "the transaction can only be aborted"
    FENCED = "the producer is fenced"


class TransactionManager:
    """The transactions of one producer. Used on its event loop."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, accumulator: Accumulator) -> None:
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.identity = NO_IDENTITY
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._coordinator = Coordinator(cluster, self.transactional_id, is_transactional=True)
        self._group_coordinators: dict[str, Coordinator] = {}
        self._in_turn = asyncio.Lock()
        self._error: SparklogError | None = None
        """The reason of FAILED or FENCED."""
        self._is_begun = False
        """Whether the brokers may know of the open transaction."""
        self._is_enlisted = False
        """Whether another process begins and ends the transaction."""
        self._enter(ProducerTransactionState.READY)

    @property
    def is_dropped(self) -> bool:
        """Whether no more batches of the transaction may be sent."""
        return self._state in (
            ProducerTransactionState.FAILED,
            ProducerTransactionState.ABORTING,
            ProducerTransactionState.FENCED,
        )

    @property
    def is_to_be_ended(self) -> bool:
        """Whether a transaction is open or has failed."""
        return self._state in (ProducerTransactionState.OPEN, ProducerTransactionState.FAILED)

    def sent(self) -> None:
        """Note that batches are sent in the transaction."""
        self._is_begun = True

    def failed(self, error: SparklogError) -> None:
        """Note that a record could not be written: from now on the transaction can only be aborted."""
        if self._state is ProducerTransactionState.OPEN:
            self._enter(ProducerTransactionState.FAILED, error)

    async def begin(self) -> None:
        """Begin a transaction; the first call requests the producer id.

        Raises InvalidTxnState if one is open, TransactionAbortable if one has failed, ProducerFenced, or the last
        KafkaError after `default_api_timeout_ms`.
        """
        async with self._in_turn:
            if self._state is not ProducerTransactionState.READY:
                raise self._refusal()
            if self.identity == NO_IDENTITY:
                request = log_pb2.InitProducerIdRequest(
                    transactional_id=self.transactional_id, transaction_timeout_ms=self._config.transaction_timeout_ms
                )
                self._set_identity(await self._ask("InitProducerId", request, "log"))
            self._enter(ProducerTransactionState.OPEN)

    def enlist(self, identity: ProducerIdentity) -> None:
        """Send under this identity, in a transaction that another process begins and ends.

        Raises InvalidTxnState if a transaction is open.
        """
        if self._state is not ProducerTransactionState.READY:
            raise self._refusal()
        self.identity, self._is_enlisted = identity, True
        self._enter(ProducerTransactionState.OPEN)

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit offsets in the open transaction.

        Raises InvalidTxnState without one. Any other error leaves a transaction that can only be aborted.
        """
        async with self._in_turn:
            if self._state is not ProducerTransactionState.OPEN:
                raise self._refusal()
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
                offsets=offset_messages(offsets),
            )
            coordinator = self._group_coordinators.get(group.group_id)
            if coordinator is None:
                coordinator = self._group_coordinators[group.group_id] = Coordinator(self._cluster, group.group_id)
            try:
                await coordinator.ask_until(
                    "TxnOffsetCommit", request, self._config.default_api_timeout_ms, service="transactions"
                )
            except KafkaError as error:
                self.failed(error)
                raise
            except asyncio.CancelledError:
                self.failed(RequestTimedOut("the commit of offsets was cancelled"))
                raise

    async def commit(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Commit the transaction after `flush`, which waits for its records. May be repeated after a time-out.

        Raises TransactionAbortable if it has failed or timed out; ProducerFenced; InvalidTxnState without a
        transaction; RequestTimedOut if the outcome is unknown after `default_api_timeout_ms`.
        """
        async with self._in_turn:
            self._refuse_if_enlisted()
            if self._state is ProducerTransactionState.OPEN:
                self._accumulator.refuse(lambda: InvalidTxnState(ProducerTransactionState.COMMITTING.value))
                try:
                    await flush()
                except BaseException:
                    self._enter(self._state, self._error)
                    raise
            if self._state not in (ProducerTransactionState.OPEN, ProducerTransactionState.COMMITTING):
                raise self._refusal()
            self._enter(ProducerTransactionState.COMMITTING)
            await self._end(is_commit=True)

    async def abort(self, drop: Callable[[], Awaitable[None]]) -> None:
        """Abort the transaction after `drop`, which drops its records. May be repeated after a time-out.

        Raises as `commit` does, but not TransactionAbortable.
        """
        async with self._in_turn:
            self._refuse_if_enlisted()
            if self._state not in (
                ProducerTransactionState.OPEN,
                ProducerTransactionState.FAILED,
                ProducerTransactionState.ABORTING,
            ):
                raise self._refusal()
            self._enter(ProducerTransactionState.ABORTING)
            await drop()
            await self._end(is_commit=False)

    async def close(self, drop: Callable[[], Awaitable[None]], timeout_ms: int | None) -> None:
        """Abort a transaction that is open or has failed, for at most `timeout_ms`; a failure is logged.

        The coordinator then aborts it after transaction_timeout_ms.
        """
        if self._is_enlisted or not (self.is_to_be_ended or self._state is ProducerTransactionState.ABORTING):
            return
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self.abort(drop)
        except (KafkaError, TimeoutError) as error:
            why = error if isinstance(error, KafkaError) else f"{timeout_ms} ms passed"
            logger.warning("the transaction of %r was not aborted: %s", self.transactional_id, why)

    def _refuse_if_enlisted(self) -> None:
        if self._is_enlisted:
            raise InvalidTxnState("the transaction is ended by whoever has begun it")

    async def _end(self, *, is_commit: bool) -> None:
        if self._is_begun:
            try:
                ended = await self._request_end(is_commit=is_commit)
            except RetriableError as error:
                again = "commit" if is_commit else "abort"
                raise RequestTimedOut(
                    f"whether the transaction has ended is not known: call {again}() again, or close the producer. "
                    f"({error})"
                ) from error
            self._set_identity(ended)
        self._enter(ProducerTransactionState.READY)

    async def _request_end(self, *, is_commit: bool) -> Any:
        """Return the coordinator's answer, with the identity for the next transaction."""
        request = transactions_pb2.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            commit=is_commit,
        )
        if not is_commit:
            return await self._ask("EndTxn", request, "transactions")
        try:
            return await self._ask("EndTxn", request, "transactions", bearable=ProducerFenced)
        except ProducerFenced as error:
            # The coordinator has aborted it for its age or for another producer, and accepts this producer in the first
            # case alone.
            self._set_identity(await self._request_end(is_commit=False))
            text = f"it was open for longer than transaction_timeout_ms = {self._config.transaction_timeout_ms}"
            self._enter(ProducerTransactionState.FAILED, TransactionAbortable(f"{text}: {error}"))
            raise self._refusal() from error

    def _set_identity(self, given: Any) -> None:
        """Continue with the producer id and epoch in an answer."""
        self.identity = ProducerIdentity(given.producer_id, given.producer_epoch, True)
        self._is_begun = False

    async def _ask(
        self, method: str, request: Any, service: str, *, bearable: type[KafkaError] | tuple[()] = ()
    ) -> Any:
        """Return the coordinator's answer; retry until `default_api_timeout_ms`.

        Raises KafkaError, and fences the producer after an error of _FATAL that is not `bearable`.
        """

        async def attempt() -> Any:
            answer = await self._coordinator.ask(method, request, self._config.request_timeout_ms, service=service)
            raise_error_of(answer)
            return answer

        try:
            return await retrying(
                attempt,
                timeout_ms=self._config.default_api_timeout_ms,
                backoff=self._cluster.backoff,
                clock=self._cluster.clock,
            )
        except tuple(_FATAL) as error:
            if isinstance(error, bearable):
                raise
            self._enter(ProducerTransactionState.FENCED, error)
            raise self._refusal() from error

    def _enter(self, state: ProducerTransactionState, error: SparklogError | None = None) -> None:
        """Enter a state, with the error of FAILED and FENCED. Only OPEN takes records."""
        self._state, self._error = state, error
        if state is ProducerTransactionState.OPEN:
            self._accumulator.accept()
        else:
            self._accumulator.refuse(self._refusal)

    def _refusal(self) -> KafkaError:
        if self._state is ProducerTransactionState.FENCED:
            assert isinstance(self._error, KafkaError)
            cls = type(self._error)
            text = (
                f"the producer with transactional_id = {self.transactional_id!r} cannot go on: {_FATAL[cls]}. "
                f"Close it. ({self._error})"
            )
            return ProducerFenced(text) if cls is InvalidProducerEpoch else cls(text)
        if self._state is ProducerTransactionState.FAILED:
            return TransactionAbortable(f"{self._state.value}: {self._error}")
        return InvalidTxnState(self._state.value)
