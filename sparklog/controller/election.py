"""Choice of a partition's leader: pure functions of its replicas, its ISR and the online brokers.

    offline              the first replica that is online and in sync; without one, and if the topic allows unclean
                         elections, the first that is online: records that only other replicas have are lost. Replicas
                         that a reassignment adds come last, as they may have no records yet
    reassignment         the first of the target replicas that is online and in sync
    preferred            the first replica, if it is online and in sync
    controlled shutdown  the first replica that is in sync, not shutting down, and known to be alive: its broker has
                         answered a request since the shutdown began

Each choice also has the new ISR. An election adds no replica to the ISR, except the leader of an unclean election,
which is then alone in it.

A partition that was restored after the cluster store was lost has an empty ISR: any replica may lack acknowledged
records. It gets a leader once all its replicas are online and have reported where their logs end. The replica with the
latest leader epoch, and in it the greatest end, has all acknowledged records: every leader had the records of the
leaders before it, and within an epoch all logs are equal. This replica leads, and those with the same end are in sync.
An unclean election by request compares the online replicas only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import structs

from sparklog.base.errors import EligibleLeadersNotAvailable, KafkaError, PreferredLeaderNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.cluster.partition_states import Leadership
from sparklog.controller.context import ControllerContext

FIRST_LEADER_EPOCH = 0


class Election(Enum):
    """The reason of an election, which selects the algorithm."""

    OFFLINE = "offline"
    UNCLEAN = "unclean"
    """As OFFLINE, but an unclean election by request, even if the topic does not allow it."""
    REASSIGNMENT = "reassignment"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class LeaderChoice(NamedTuple):
    leader: int
    isr: tuple[int, ...]


def choose_offline(
    replicas: Sequence[int],
    isr: Sequence[int],
    online: Collection[int],
    *,
    unclean: bool,
    adding: Collection[int] = (),
    stopping: Collection[int] = (),
) -> LeaderChoice | None:
    """Return the leader and ISR of a partition without a leader; None if no replica may lead.

    replicas: in the order of preference. unclean: whether a replica that is not in sync may lead, and lose records.
    adding: the replicas that a reassignment adds. stopping: the replicas of brokers that shut down. They do not lead,
    but stay in the ISR until the shutdown removes them: the new leader may have lost power without notice
    """
    for broker in replicas:
        if broker in isr and broker in online:
            return LeaderChoice(broker, tuple(each for each in isr if each in online or each in stopping))
    if unclean:
        for broker in sorted(replicas, key=lambda each: each in adding):
            if broker in online:
                return LeaderChoice(broker, (broker,))
    return None


def choose_reassigned(target: Sequence[int], isr: Sequence[int], online: Collection[int]) -> LeaderChoice | None:
    """Return the first of `target` that is online and in sync, with the ISR as it is; None if there is none."""
    for broker in target:
        if broker in isr and broker in online:
            return LeaderChoice(broker, tuple(isr))
    return None


def choose_preferred(replicas: Sequence[int], isr: Sequence[int], online: Collection[int]) -> LeaderChoice | None:
    """Return the first replica, with the ISR as it is; None if it is not online and in sync."""
    return choose_reassigned(replicas[:1], isr, online)


def choose_for_shutdown(
    replicas: Sequence[int], isr: Sequence[int], online: Collection[int], shutting_down: Collection[int]
) -> LeaderChoice | None:
    """Return another leader, with the ISR without the brokers that are shutting down; None if there is none."""
    staying = tuple(broker for broker in isr if broker not in shutting_down)
    for broker in replicas:
        if broker in staying and broker in online:
            return LeaderChoice(broker, staying)
    return None


def elect(context: ControllerContext, name: TopicPartition, election: Election, *, unclean: bool) -> Leadership:
    """Return the new state to write for the partition. `unclean`: whether its topic allows unclean elections.

    Raises EligibleLeadersNotAvailable or PreferredLeaderNotAvailable.
    """
    known = context.leadership.get(name)
    if known is None:
        return _first_state(context, name)
    if not known.isr:
        return _first_restored_state(context, name, known, election)
    choice = _choose(context, name, known, election, unclean=unclean)
    if choice is None:
        raise _not_available(name, known, election)
    return structs.replace(
        known,
        leader=choice.leader,
        isr=choice.isr,
        leader_epoch=known.leader_epoch + 1,
        controller_epoch=context.epoch,
    )


def _first_state(context: ControllerContext, name: TopicPartition) -> Leadership:
    """Return the first state of a partition: all online replicas are in sync, as none has records."""
    online = context.online_replicas(name)
    if not online:
        raise EligibleLeadersNotAvailable(f"{name}: none of its replicas {context.assignment(name).replicas} is online")
    return Leadership(leader=online[0], leader_epoch=FIRST_LEADER_EPOCH, isr=online, controller_epoch=context.epoch)


def _first_restored_state(
    context: ControllerContext, name: TopicPartition, known: Leadership, election: Election
) -> Leadership:
    """Return the first state of a restored partition, by a comparison of its replicas."""
    replicas = context.assignment(name).replicas
    told = {broker: context.log_ends.get(broker, {}).get(name) for broker in context.online_replicas(name)}
    ends = {broker: (end.leader_epoch, end.end_offset) for broker, end in told.items() if end}
    missing = [broker for broker in replicas if broker not in ends]
    if not ends or (missing and election is not Election.UNCLEAN):
        raise EligibleLeadersNotAvailable(
            f"{name}: the cluster store was lost, and its replicas {replicas} are to be compared; {missing} have not "
            "told yet where their logs end. If they never come back, hold an unclean election: "
            "records that only they have are lost"
        )
    last = max(ends.values())
    in_sync = tuple(broker for broker in replicas if ends.get(broker) == last)
    return structs.replace(
        known,
        leader=in_sync[0],
        isr=in_sync,
        leader_epoch=max(known.leader_epoch, last[0]) + 1,
        controller_epoch=context.epoch,
    )


def _choose(
    context: ControllerContext, name: TopicPartition, known: Leadership, election: Election, *, unclean: bool
) -> LeaderChoice | None:
    assignment = context.assignment(name)
    online = context.online_replicas(name)
    match election:
        case Election.OFFLINE | Election.UNCLEAN:
            allowed = unclean or election is Election.UNCLEAN
            stopping = set(context.online_replicas(name, with_shutting_down=True)).difference(online)
            return choose_offline(
                assignment.replicas, known.isr, online, unclean=allowed, adding=assignment.adding, stopping=stopping
            )
        case Election.REASSIGNMENT:
            return choose_reassigned(assignment.target, known.isr, online)
        case Election.PREFERRED:
            return choose_preferred(assignment.replicas, known.isr, online)
        case Election.CONTROLLED_SHUTDOWN:
            alive = context.have_answered(context.shutting_down.get(known.leader, 0)).intersection(online)
            return choose_for_shutdown(assignment.replicas, known.isr, alive, context.shutting_down)


def _not_available(name: TopicPartition, known: Leadership, election: Election) -> KafkaError:
    if election is Election.PREFERRED:
        return PreferredLeaderNotAvailable(f"{name}: its first replica is not online and in sync {known.isr}")
    return EligibleLeadersNotAvailable(f"{name}: no in-sync replica {known.isr} is online")
