"""The operations of a controller, in the order in which they get events, and the requests of brokers to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.controller.deletion import TopicDeletion
from sparklog.controller.dependencies import ControllerDependencies
from sparklog.controller.operation import ControllerOperation
from sparklog.controller.preferred import Elections
from sparklog.controller.reassignment import Reassignments, Targets
from sparklog.controller.shutdown import shut_down


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """The operations of one controller, from its election to its end."""

    dependencies: ControllerDependencies
    reassignment: Reassignments
    deletion: TopicDeletion
    elections: Elections

    def __iter__(self) -> Iterator[ControllerOperation]:
        """Iterate in the order of events. Deletion follows reassignment, as topics wait for the end of their moves."""
        return iter((self.reassignment, self.deletion, self.elections))

    async def reassign(self, targets: Targets, *, may_resize: bool) -> dict[TopicPartition, KafkaError | None]:
        """Begin to move partitions, or cancel (a target of None). Return the error of each partition, or None."""
        answers = await self.reassignment.ask(targets, may_resize=may_resize)
        await self.deletion.resume()
        return answers

    async def elect_leaders(
        self, names: Iterable[TopicPartition] | None, *, is_unclean: bool
    ) -> dict[TopicPartition, int | KafkaError]:
        """Elect leaders of these partitions, or of all. Return for each its leader, or the error."""
        return await self.elections.elect(names, is_unclean=is_unclean)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> tuple[TopicPartition, ...]:
        """Move leaderships away from the broker. Return the partitions that it still leads."""
        return await shut_down(self.dependencies, broker_id=broker_id, broker_epoch=broker_epoch)


def begin_operations(dependencies: ControllerDependencies) -> Operations:
    deletion = TopicDeletion(dependencies)
    return Operations(
        dependencies=dependencies,
        reassignment=Reassignments(dependencies, is_marked=deletion.is_marked),
        deletion=deletion,
        elections=Elections(dependencies),
    )
