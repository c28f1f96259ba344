"""The operations of a controller, in the order in which they get events, and the requests of brokers to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.controller.controlled_shutdown import ControlledShutdowns
from sparklog.controller.deletion import TopicDeletion
from sparklog.controller.dependencies import ControllerDependencies
from sparklog.controller.leader_elections import LeaderElections
from sparklog.controller.operation import ControllerOperation
from sparklog.controller.reassignment import Reassignments, Targets


class Operations(Struct, frozen=True, kw_only=True):
    """The operations of one controller, from its election to its end."""

    shutdowns: ControlledShutdowns
    reassignment: Reassignments
    deletion: TopicDeletion
    elections: LeaderElections

    def __iter__(self) -> Iterator[ControllerOperation]:
        """Iterate in the order of events. Deletion follows reassignment, as topics wait for the end of their moves."""
        return iter((self.shutdowns, self.reassignment, self.deletion, self.elections))

    async def reassign(self, targets: Targets, *, may_resize: bool) -> dict[TopicPartition, KafkaError | None]:
        """Begin moves of partitions, or cancel them (target None). Return an error, or None, for each partition."""
        answers = await self.reassignment.reassign(targets, may_resize=may_resize)
        await self.deletion.resume()
        return answers

    async def elect_leaders(
        self, names: Iterable[TopicPartition] | None, *, is_unclean: bool
    ) -> dict[TopicPartition, int | KafkaError]:
        """Elect leaders of these partitions; None: of all. Return the leader or the error of each."""
        return await self.elections.elect(names, is_unclean=is_unclean)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> tuple[TopicPartition, ...]:
        """Move leaderships away from the broker. Return the partitions that remain (controlled_shutdown.py)."""
        return await self.shutdowns.shut_down(broker_id, broker_epoch)


def begin_operations(dependencies: ControllerDependencies) -> Operations:
    """Return a new controller's operations; nothing has begun yet."""
    deletion = TopicDeletion(dependencies)
    return Operations(
        shutdowns=ControlledShutdowns(dependencies),
        reassignment=Reassignments(dependencies, is_marked=deletion.is_marked),
        deletion=deletion,
        elections=LeaderElections(dependencies),
    )
