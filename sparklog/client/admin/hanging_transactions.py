"""Search for hanging transactions: open in a partition, and no coordinator will write their markers there.

Readers of committed records never get past a hanging transaction. The search is that of Kafka's tool
(TransactionsCommand, KIP-664). The candidates are the open transactions whose producer has written nothing for longer
than any transaction timeout. A candidate hangs if no coordinator has its partition in a transaction of its producer.

Differs from Kafka's tool:

- The partitions of the results are described once more at the end: a transaction that ends between two answers looks
  as if no coordinator knew it.
- Only leaders are asked, so a broker's partitions are those that it leads.
- Topics that are deleted during the search are left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from sparklog.base.clock import Clock
from sparklog.base.errors import UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.client.admin.descriptions import TopicDescription
from sparklog.client.admin.transaction_descriptions import ProducerDescription, TransactionDescription
from sparklog.client.admin.transactions import Progress, TransactionAdmin

MAX_TIMEOUT_MS = 15 * 60_000
"""The default of the brokers' transaction.max.timeout.ms."""
Leaders = Mapping[TopicPartition, int]
NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ProducerDescription

    def silent_ms(self, now_ms: int) -> int:
        """Return how long ago the producer last wrote to the partition, in ms."""
        return now_ms - self.producer.last_timestamp_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransactions:
    """The result of a search, sorted by partition."""

    found: tuple[OpenTransaction, ...]
    searched: tuple[TopicPartition, ...]
    without_leader: tuple[TopicPartition, ...]
    """Partitions that were not searched because they have no leader at the moment."""


async def search(
    transactions: TransactionAdmin, clock: Clock, leaders: Leaders, max_timeout_ms: int, progress: Progress | None
) -> HangingTransactions:
    """Return the hanging transactions of the partitions.

    leaders: the broker id of each partition's leader. Partitions without a leader are listed, not searched.
    """
    led = [name for name, leader in leaders.items() if leader != NO_LEADER]
    now_ms = clock.time_ms()
    producers = await transactions.describe_producers(led, progress, omits_missing=True)
    candidates = long_open(producers, max_timeout_ms, now_ms)
    known = await transactions.of_producers(each.producer.producer_id for each in candidates)
    suspects = without_coordinator(candidates, known)
    again = await transactions.describe_producers((each.partition for each in suspects), omits_missing=True)
    seen_again = long_open(again, max_timeout_ms, now_ms)
    return HangingTransactions(
        found=tuple(each for each in suspects if each in seen_again),
        searched=tuple(name for name in led if name in producers),
        without_leader=tuple(name for name, leader in leaders.items() if leader == NO_LEADER),
    )


def long_open(
    producers: Mapping[TopicPartition, Iterable[ProducerDescription]], silent_for_ms: int, now_ms: int
) -> list[OpenTransaction]:
    """Return the open transactions whose producers have written nothing for longer than `silent_for_ms`, sorted."""
    found = (OpenTransaction(partition=name, producer=each) for name in sorted(producers) for each in producers[name])
    return [each for each in found if each.producer.has_transaction and each.silent_ms(now_ms) > silent_for_ms]


def without_coordinator(
    candidates: Iterable[OpenTransaction], transactions: Iterable[TransactionDescription]
) -> list[OpenTransaction]:
    """Return the candidates whose partition is in no transaction of their producer.

    transactions: the coordinators' transactions of the candidates' producer ids
    """
    ending = {(each.producer_id, name) for each in transactions for name in each.partitions}
    return [each for each in candidates if (each.producer.producer_id, each.partition) not in ending]


async def leaders_of(
    partitions: Iterable[TopicPartition] | None,
    topics: Iterable[str],
    describe: Callable[[Iterable[str]], Awaitable[list[TopicDescription]]],
) -> dict[TopicPartition, int]:
    """Return the leaders of `partitions`, or of all partitions of `topics`. Raises UnknownTopicOrPartition.

    describe: returns descriptions of these topics; of all topics if no name is given
    """
    wanted = None if partitions is None else sorted(set(partitions))
    names = topics if wanted is None else dict.fromkeys(item.topic for item in wanted)
    leaders = {
        TopicPartition(topic.name, part.partition): part.leader
        for topic in await describe(names)
        for part in topic.partitions
    }
    for item in wanted or ():
        if item not in leaders:
            raise UnknownTopicOrPartition(f"there is no partition {item}")
    return leaders if wanted is None else {item: leaders[item] for item in wanted}
