"""Who is to lead a partition: pure functions of its replicas, its ISR and of who is online.

    offline              the first replica that is online and in sync; where there is none and the topic allows it
                         (unclean), the first that is online: records that only others have are lost
    reassignment         the first of the target replicas that is online and in sync
    preferred            the first replica, if it is online and in sync
    controlled shutdown  the first replica that is online, in sync and not shutting down

Each also says who is in sync from then on. Nobody joins the ISR by an election, but for the leader of an unclean one,
which is alone in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

from sparklog.base.errors import EligibleLeadersNotAvailable, KafkaError, PreferredLeaderNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.cluster.partition_states import Leadership
from sparklog.controller.context import ControllerContext

FIRST_LEADER_EPOCH = 0


class Election(Enum):
    """Why a leader is elected."""

    OFFLINE = "offline"
    UNCLEAN = "unclean"
    """As OFFLINE, for a topic that does not allow it by itself: somebody has asked for it."""
    REASSIGNMENT = "reassignment"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class Choice(NamedTuple):
    leader: int
    isr: tuple[int, ...]


def choose_offline(
    replicas: Sequence[int], isr: Sequence[int], online: Collection[int], *, unclean: bool
) -> Choice | None:
    in_sync = tuple(broker for broker in isr if broker in online)
    for broker in replicas:
        if broker in in_sync:
            return Choice(broker, in_sync)
    if unclean:
        for broker in replicas:
            if broker in online:
                return Choice(broker, (broker,))
    return None


def choose_reassigned(target: Sequence[int], isr: Sequence[int], online: Collection[int]) -> Choice | None:
    for broker in target:
        if broker in isr and broker in online:
            return Choice(broker, tuple(isr))
    return None


def choose_preferred(replicas: Sequence[int], isr: Sequence[int], online: Collection[int]) -> Choice | None:
    return choose_reassigned(replicas[:1], isr, online)


def choose_for_shutdown(
    replicas: Sequence[int], isr: Sequence[int], online: Collection[int], shutting_down: Collection[int]
) -> Choice | None:
    staying = tuple(broker for broker in isr if broker not in shutting_down)
    for broker in replicas:
        if broker in staying and broker in online:
            return Choice(broker, staying)
    return None


def elect(context: ControllerContext, name: TopicPartition, election: Election, *, unclean: bool) -> Leadership:
    """What is to be written for the partition; `unclean`: its topic allows that.

    Raises EligibleLeadersNotAvailable or PreferredLeaderNotAvailable.
    """
    known = context.leadership.get(name)
    if known is None:
        return _first(context, name)
    choice = _choose(context, name, known, election, unclean=unclean)
    if choice is None:
        raise _nobody(name, known, election)
    return dataclasses.replace(
        known,
        leader=choice.leader,
        isr=choice.isr,
        leader_epoch=known.leader_epoch + 1,
        controller_epoch=context.epoch,
    )


def _first(context: ControllerContext, name: TopicPartition) -> Leadership:
    """Of a partition that never had a leader: whoever is there is in sync, as nobody has anything."""
    online = context.online_replicas(name)
    if not online:
        raise EligibleLeadersNotAvailable(f"{name}: none of its replicas {context.assignment(name).replicas} is online")
    return Leadership(leader=online[0], leader_epoch=FIRST_LEADER_EPOCH, isr=online, controller_epoch=context.epoch)


def _choose(
    context: ControllerContext, name: TopicPartition, known: Leadership, election: Election, *, unclean: bool
) -> Choice | None:
    assignment = context.assignment(name)
    online = context.online_replicas(name)
    match election:
        case Election.OFFLINE | Election.UNCLEAN:
            allowed = unclean or election is Election.UNCLEAN
            return choose_offline(assignment.replicas, known.isr, online, unclean=allowed)
        case Election.REASSIGNMENT:
            return choose_reassigned(assignment.target, known.isr, online)
        case Election.PREFERRED:
            return choose_preferred(assignment.replicas, known.isr, online)
        case Election.CONTROLLED_SHUTDOWN:
            return choose_for_shutdown(assignment.replicas, known.isr, online, context.shutting_down)


def _nobody(name: TopicPartition, known: Leadership, election: Election) -> KafkaError:
    if election is Election.PREFERRED:
        return PreferredLeaderNotAvailable(f"{name}: its first replica is not online and in sync {known.isr}")
    return EligibleLeadersNotAvailable(f"{name}: nobody who is in sync {known.isr} is online")
