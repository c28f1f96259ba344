"""The operations of a controller, in the order in which they are told what has happened; what brokers ask of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.controller.deletion import TopicDeletion
from sparklog.controller.dependencies import Dependencies
from sparklog.controller.operation import Operation
from sparklog.controller.preferred import Elections
from sparklog.controller.reassignment import Reassignment, Targets
from sparklog.controller.shutdown import shut_down


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Of one controller, from its election to its end."""

    parts: Dependencies
    reassignment: Reassignment
    deletion: TopicDeletion
    elections: Elections

    def __iter__(self) -> Iterator[Operation]:
        """A topic that waits for its partitions to have moved hears of it after those who move them."""
        return iter((self.reassignment, self.deletion, self.elections))

    async def reassign(self, targets: Targets, *, may_resize: bool) -> dict[TopicPartition, KafkaError | None]:
        """Begin to move partitions, or stop (a target of None); why not, by partition."""
        answers = await self.reassignment.ask(targets, may_resize=may_resize)
        await self.deletion.resume()
        return answers

    async def elect_leaders(
        self, names: Iterable[TopicPartition] | None, *, is_unclean: bool
    ) -> dict[TopicPartition, int | KafkaError]:
        """Of each partition, or of all: who was elected, or why nobody was."""
        return await self.elections.elect(names, is_unclean=is_unclean)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> tuple[TopicPartition, ...]:
        """What the broker leads still, now that others have taken over what they could."""
        return await shut_down(self.parts, broker_id=broker_id, broker_epoch=broker_epoch)


def begin_operations(parts: Dependencies) -> Operations:
    deletion = TopicDeletion(parts)
    return Operations(
        parts=parts,
        reassignment=Reassignment(parts, is_marked=deletion.is_marked),
        deletion=deletion,
        elections=Elections(parts),
    )
