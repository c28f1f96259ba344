"""Verification that a producer's batch belongs to its transaction (KIP-890).

Without it, a batch that arrives after the end of its transaction would begin another one, which no producer ends. So
the first batch of a transaction in a partition is accepted only after the coordinator has confirmed that the partition
is enrolled in the transaction. For clients of protocol 2 the same request enrols the partition; clients of protocol 1
have enrolled it before.

The partition keeps a `Verification` until the answer comes. The end of the transaction makes it void, so a late answer
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from sparklog.base.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NetworkException,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnknownServerError,
)
from sparklog.base.ids import TopicPartition
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.peers import Peers
from sparklog.coordinator.transaction_messages import TransactionProtocol
from sparklog.log.producers.verifications import UNVERIFIED, Verification
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.state_machine import ProducerIdAndEpoch
from sparklog.transaction.requests import AddPartitions, AddPartitionsResponse

TIMEOUT_MS = 10_000
_TEMPORARY = (
    NetworkException, RequestTimedOut, ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable,
    NotCoordinator,
)  # fmt: skip
VerificationResult: TypeAlias = Verification | KafkaError | None
"""The verification to append a batch with, or the error that refuses the batch; None: the transaction has begun in the
partition already."""


class FirstBatch(NamedTuple):
    """Producer and sequence number of a request's first batch in a partition."""

    producer: ProducerIdAndEpoch
    first_sequence: int = -1
    """-1: it has no sequence number."""


class TransactionVerifier:
    """Asks the coordinators, here or on other brokers, about batches of partitions that this broker leads."""

    def __init__(
        self,
        *,
        is_enabled: Callable[[], bool],
        replicas: ReplicaManager,
        metadata: MetadataCache,
        peers: Peers,
        coordinator_of: Callable[[str], TopicPartition],
    ) -> None:
        """is_enabled: returns transaction.partition.verification.enable. coordinator_of: returns the partition of
        `__transaction_state` that a transactional id belongs to.
        """
        self._is_enabled = is_enabled
        self._replicas = replicas
        self._metadata = metadata
        self._peers = peers
        self._coordinator_of = coordinator_of

    async def verify(
        self, transactional_id: str, batches: Mapping[TopicPartition, FirstBatch], protocol: TransactionProtocol
    ) -> dict[TopicPartition, VerificationResult]:
        """Return the outcome for the batches of one request, by partition."""
        found: dict[TopicPartition, VerificationResult] = {}
        asked: dict[ProducerIdAndEpoch, list[TopicPartition]] = {}
        for name, batch in batches.items():
            try:
                found[name] = self._begin(name, batch, protocol)
            except KafkaError as error:
                found[name] = error
            else:
                if isinstance(found[name], Verification) and found[name] is not UNVERIFIED:
                    asked.setdefault(batch.producer, []).append(name)
        for producer, names in asked.items():
            answers = await self._ask(transactional_id, producer, names, protocol)
            for name in names:
                if refused := _for_client(answers.get(name, _NO_ANSWER), protocol):
                    found[name] = refused
        return found

    def _begin(self, name: TopicPartition, batch: FirstBatch, protocol: TransactionProtocol) -> Verification | None:
        replica = self._replicas.get_leader(name)
        if not (self._is_enabled() or protocol.enrols):
            return UNVERIFIED
        return replica.log.begin_verification(*batch.producer, batch.first_sequence)

    async def _ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        names: Sequence[TopicPartition],
        protocol: TransactionProtocol,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        request = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            partitions=names,
            is_verify_only=not protocol.enrols,
            transaction_version=2 if protocol.enrols else 0,
        )
        try:
            leader = self._metadata.leader_of(self._coordinator_of(transactional_id))
            if leader is None:
                raise CoordinatorNotAvailable(f"transactional id {transactional_id!r} has no coordinator")
            answer: AddPartitionsResponse = await self._peers.call(leader, request, timeout_ms=TIMEOUT_MS)
        except KafkaError as error:
            return dict.fromkeys(names, error)
        return answer.errors


_NO_ANSWER = UnknownServerError("the transaction coordinator gave no answer for the partition")


def _for_client(error: KafkaError | None, protocol: TransactionProtocol) -> KafkaError | None:
    """Return the error as a client can handle it (AddPartitionsToTxnManager)."""
    if isinstance(error, _TEMPORARY):
        if protocol.enrols and isinstance(error, ConcurrentTransactions):
            return error
        return NotEnoughReplicas(f"the transaction could not be verified: {error}")  # old clients, too, retry this
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, InvalidTxnState) and protocol.knows_abortable:
        return TransactionAbortable(str(error))
    return error
