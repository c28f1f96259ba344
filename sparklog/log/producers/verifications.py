"""Verifications: a partition asks the coordinator whether a transaction is open before its first batch is appended.

A delayed batch must not reopen a transaction after its end, since the coordinator would never end it (KIP-890). So the
first batch of a transaction needs a `Verification`, which is made before the coordinator is asked, and is void once the
transaction may have ended: after any marker of the producer, any transactional batch, a batch of a newer epoch, a
truncation or a restart. As Apache Kafka's VerificationStateEntry and VerificationGuard.

Batches of one producer that wait together share a verification. It keeps the lowest of their sequence numbers, so that
a partition without state of the producer does not accept a later batch first.
"""

from __future__ import annotations

from collections import OrderedDict

from sparklog.base.errors import InvalidProducerEpoch

NO_SEQUENCE = -1


class Verification:
    """One producer's verification, compared by identity."""

    __slots__ = ("asked_ms", "first_sequence", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int, first_sequence: int, asked_ms: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.first_sequence = first_sequence
        """The lowest sequence number of the waiting batches; NO_SEQUENCE: unknown."""
        self.asked_ms = asked_ms

    def ask_again(self, first_sequence: int, now_ms: int) -> None:
        """Record another waiting batch."""
        self.asked_ms = now_ms
        if first_sequence != NO_SEQUENCE:
            known = self.first_sequence
            self.first_sequence = first_sequence if known == NO_SEQUENCE else min(known, first_sequence)


UNVERIFIED = Verification(-1, -1, NO_SEQUENCE, 0)
"""Allows every transaction; for the broker itself, or if transaction.partition.verification.enable is false."""


class Verifications:
    """The verifications in progress in one partition, by producer id, oldest first."""

    __slots__ = ("_limit", "_of")

    def __init__(self, limit: int) -> None:
        """limit: maximum number; beyond it, the oldest is void."""
        self._limit = limit
        self._of: OrderedDict[int, Verification] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def get(self, producer_id: int) -> Verification | None:
        """Return the producer's verification; None if there is none, or it is void."""
        return self._of.get(producer_id)

    def begin(self, producer_id: int, producer_epoch: int, first_sequence: int, now_ms: int) -> Verification:
        """Return the producer's verification in that epoch. Raises InvalidProducerEpoch for an older epoch."""
        known = self._of.get(producer_id)
        if known is None or known.producer_epoch < producer_epoch:
            known = self._of[producer_id] = Verification(producer_id, producer_epoch, first_sequence, now_ms)
        elif known.producer_epoch > producer_epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} begins a transaction in epoch {known.producer_epoch}, "
                f"its batch has epoch {producer_epoch}"
            )
        else:
            known.ask_again(first_sequence, now_ms)
        self._of.move_to_end(producer_id)
        while len(self._of) > self._limit:
            self._of.popitem(last=False)
        return known

    def void(self, producer_id: int) -> None:
        """Void the producer's verification, if any: its batches must be verified again."""
        self._of.pop(producer_id, None)

    def void_all(self) -> None:
        """Void all verifications."""
        self._of.clear()

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Void the verifications whose last batch came `after_ms` ago or earlier."""
        for producer_id, each in [*self._of.items()]:
            if now_ms - each.asked_ms < after_ms:
                return
            del self._of[producer_id]
