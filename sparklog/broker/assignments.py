"""Checks of replicas that a request assigns by hand, partition by partition.

Error messages and codes are those of org.apache.kafka.controller.ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from sparklog.base.errors import InvalidReplicaAssignment

Replicas = Sequence[int]


def check_numbers(numbers: Sequence[int]) -> None:
    """Raises InvalidReplicaAssignment unless a new topic's partitions are 0, 1, 2 … in any order."""
    for number, times in Counter(numbers).items():
        if times > 1:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {number}")
    if sorted(numbers) != list(range(len(numbers))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")


def check_replicas(assignments: Sequence[Replicas], brokers: Collection[int]) -> None:
    """Raises InvalidReplicaAssignment unless each partition's replicas are distinct live brokers, at least one, and all
    partitions have the same number of them.
    """
    for replicas in assignments:
        if not replicas:
            raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
        for replica in replicas:
            if replica not in brokers:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes broker {replica}, but no such broker is registered."
                )
            if replicas.count(replica) > 1:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes the broker {replica} more than once."
                )
        if len(replicas) != len(assignments[0]):
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {len(assignments[0])} replica(s)."
            )
