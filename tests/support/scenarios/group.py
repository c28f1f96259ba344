"""The vocabulary of the groups' scenarios: one group, its coordinator, and members that only do as they are told.

What comes of a command is what members are answered, with the time since the beginning; one line counts those that are
answered the same, where they are many. `a` is the name of any member, and may be several: `a,b` and `m1..m500`.

    broker KEY=VALUE                 first of all: the coordinator's configuration
    topic t=4                        there is such a topic, with so many partitions; where it is not said: 8
    join a [static=ID] [session=10s] [rebalance=60s] [protocols=range,sticky] [topics=t,u] [again]
                                     a new member; twice, if it is told its id first, but for `vanish=yes`. `again`:
                                     as the member it is
    sync a [b=WHAT c=WHAT] [all=WHAT]    the leader says who gets what; nothing: everybody one number; `b=t-0,t-1`:
                                     partitions, as consumers assign them
    heartbeat a [generation=N]
    leave a
    crash a                          its requests end, and it sends no heartbeats any more
    commit a t-0=5 [generation=N]    `commit - t-0=5`: a consumer that is in no group
    fetch t-0                        the offset that is committed
    advance 10s [beating=a,b]        time passes; beating: they send a heartbeat each 3 seconds
    state                            the group as the coordinator has it
    log                              what has been written since the last `log`
    failover                         another broker becomes the coordinator
    hold / release                   what is written is not committed until it is released
    break / repair                   nothing can be written
    forget                           offsets that have expired are looked for, and go
    delete t                         the topic is deleted
    disband                          the group is deleted

Members of the new protocol:

    consume a [static=ID] [topics=t,u] [regex=EXPR] [rebalance=60s]    it joins
    beat a [epoch=N] [keeping]       it says what it has, which is what it was last told; `keeping`: and what it
                                     had before
    away a                           a static member leaves, and will be back
    leave, crash                     as above
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sparklog.base.errors import KafkaError, MemberIdRequired, NotEnoughReplicas
from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import write_value
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.consumer_member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from sparklog.group.requests import (
    DeleteGroups,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
)
from sparklog.group.topic_pattern import match
from sparklog.offsets_topic.records import decode
from sparklog.offsets_topic.schemas import SUBSCRIPTION
from sparklog.runtime.slices import Slices
from sparklog.testing.scenario import Command, duration_ms, perform, play
from support.groups.coordinator import GroupWorld
from support.scenarios.group_members import Client, Consumer
from support.scenarios.group_words import (
    SUMMARY_FROM,
    error_name,
    names_of,
    read_work,
    show_partitions,
    show_record,
    summarize,
    write_work,
)

GROUP = "g"
HEARTBEAT_MS = 3_000
_LONG_ID = re.compile(r"00000000-0000-0000-0000-0*([0-9a-f]+)")


def play_group(text: str) -> str:
    return asyncio.run(_play(text))


async def _play(text: str) -> str:
    scenario = GroupScenario()
    try:
        return await play(text, scenario.step)
    finally:
        scenario.close()


class GroupScenario:
    """Made on a running event loop."""

    def __init__(self) -> None:
        self.world = GroupWorld()
        self.clients: dict[str, Client] = {}
        self.consumers: dict[str, Consumer] = {}
        self._trace: list[tuple[str, str]] = []
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}
        self._logged = 0

    async def step(self, command: Command) -> list[str]:
        self._trace = []
        await perform(self, command)
        await self.world.settle()
        return [_LONG_ID.sub(r"\1", line) for line in summarize(self._trace)]

    def close(self) -> None:
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()

    # Members

    async def do_join(self, names: str, *flags: str, **options: str) -> None:
        for name in names_of(names):
            if "again" not in flags:
                self.clients[name] = Client(name, **options)
            self._start(name, self._join(self.clients[name]))
        await self.world.settle()

    async def _join(self, client: Client) -> None:
        response = await self._send_join(client)
        if isinstance(response.error, MemberIdRequired):
            client.member_id = response.member_id
            self._say(client.name, "MEMBER_ID_REQUIRED")
            if client.vanish == "yes":
                return
            response = await self._send_join(client)
        if response.error is not None:
            self._say(client.name, response.error.name)
            return
        client.member_id, client.generation = response.member_id, response.generation
        client.members = tuple(self._name_of(member.member_id) for member in response.members)
        self._say(client.name, self._describe(client, response))

    async def _send_join(self, client: Client) -> JoinGroupResponse:
        metadata = write_value(0, {"topics": client.topics.split(","), "userData": None}, SUBSCRIPTION)
        request = JoinGroup(
            group_id=GROUP,
            member_id=client.member_id,
            group_instance_id=client.static,
            client_id=client.name,
            client_host="/127.0.0.1",
            protocol_type="consumer",
            protocols=[(protocol, metadata) for protocol in client.protocols.split(",")],
            session_timeout_ms=duration_ms(client.session),
            rebalance_timeout_ms=duration_ms(client.rebalance),
        )
        shard = self.world.host.shard
        return await self._ask(JoinGroupResponse, lambda ticket, now: shard.join(request, ticket, now))

    def _describe(self, client: Client, response: JoinGroupResponse) -> str:
        skip = ", keeps the assignment" if response.skip_assignment else ""
        if response.leader != response.member_id:
            leader = self._name_of(response.leader) or "nobody"
            return f"generation {response.generation}, follows {leader}{skip}"
        if len(client.members) >= SUMMARY_FROM:
            return f"generation {response.generation}, leads {len(client.members)} members{skip}"
        protocol = response.protocol
        return f"generation {response.generation} by {protocol}, leads {' '.join(client.members) or 'nobody'}{skip}"

    async def do_sync(self, names: str, /, **work: str) -> None:
        for name in names_of(names):
            client = self.clients[name]
            given = work or {member: str(at) for at, member in enumerate(client.members)}
            if "all" in given:
                given = dict.fromkeys(client.members, given["all"])
            assignments = {self.clients[member].member_id: write_work(what) for member, what in given.items()}
            self._start(name, self._sync(client, assignments if client.members else {}))

    async def _sync(self, client: Client, assignments: dict[str, bytes]) -> None:
        request = SyncGroup(
            group_id=GROUP,
            generation=client.generation,
            member_id=client.member_id,
            group_instance_id=client.static,
            assignments=assignments,
        )
        shard = self.world.host.shard
        response = await self._ask(_Refused, lambda ticket, now: shard.sync(request, ticket, now))
        self._say(client.name, error_name(response) or f"gets {read_work(response.assignment)}")

    async def do_heartbeat(self, names: str, *, generation: str = "") -> None:
        for name in names_of(names):
            await self._heartbeat(name, generation)

    async def _heartbeat(self, name: str, generation: str = "", *, is_quiet: bool = False) -> None:
        client = self.clients[name]
        request = Heartbeat(
            group_id=GROUP,
            generation=int(generation or client.generation),
            member_id=client.member_id,
            group_instance_id=client.static,
        )
        shard = self.world.host.shard
        response = await self._ask(_Refused, lambda _, now: shard.heartbeat(request, now))
        error = error_name(response)
        if error or not is_quiet:
            self._say(name, error or "ok")

    async def do_leave(self, names: str) -> None:
        if names in self.consumers:
            self._start(names, self._beat(self.consumers[names], LEAVE_EPOCH))
            return
        members = [self.clients[name] for name in names_of(names)]
        leaving = [LeavingMember(member_id=each.member_id, group_instance_id=each.static) for each in members]
        request = LeaveGroup(group_id=GROUP, members=leaving)
        response = await self._ask(_Refused, lambda _, now: self.world.host.shard.leave(request, now))
        if error := error_name(response):
            self._say(names, error)
            return
        for each, left in zip(members, response.members, strict=True):
            self._say(each.name, left.error.name if left.error else "left")

    async def do_crash(self, names: str) -> None:
        for name in names_of(names):
            for task in self._tasks.pop(name, set()):
                task.cancel()

    # Members of the new protocol

    async def do_consume(self, names: str, **options: str) -> None:
        for name in names_of(names):
            self.consumers[name] = Consumer(GROUP, name, **options)
            self._start(name, self._beat(self.consumers[name], JOIN_EPOCH))

    async def do_beat(self, names: str, *flags: str, epoch: str = "") -> None:
        for name in names_of(names):
            consumer = self.consumers[name]
            consumer.has = consumer.told | (consumer.has if "keeping" in flags else set())
            self._start(name, self._beat(consumer, int(epoch or consumer.epoch)))

    async def do_away(self, name: str) -> None:
        self._start(name, self._beat(self.consumers[name], LEAVE_STATIC_EPOCH))

    async def _beat(self, consumer: Consumer, epoch: int) -> None:
        shard, request = self.world.host.shard, consumer.request(epoch)
        texts = shard.to_match(GROUP, request.subscribed_topic_regex)
        matches = await match(texts, self.world.topics, Slices())
        response = await self._ask(_Refused, lambda _, now: shard.consumer_heartbeat(request, now, matches))
        if error := error_name(response):
            self._say(consumer.name, error)
            return
        if response.member_epoch < JOIN_EPOCH:
            self._say(consumer.name, "left" if response.member_epoch == LEAVE_EPOCH else "away")
            return
        consumer.epoch = response.member_epoch
        if response.assignment is None:
            self._say(consumer.name, f"epoch {consumer.epoch}")
            return
        consumer.told = set(response.assignment)
        self._say(consumer.name, f"epoch {consumer.epoch}, is to have {show_partitions(response.assignment)}")

    # Offsets

    async def do_commit(self, name: str, /, generation: str = "", **offsets: str) -> None:
        client = self.clients.get(name, Client(name))
        request = OffsetCommit(
            group_id=GROUP,
            generation_or_epoch=int(generation or client.generation),
            member_id=client.member_id,
            group_instance_id=client.static,
            offsets=[
                OffsetToCommit(partition=TopicPartition.parse(where), offset=int(offset))
                for where, offset in offsets.items()
            ],
        )
        self._start(name, self._commit(name, request))

    async def _commit(self, name: str, request: OffsetCommit) -> None:
        response = await self._ask(_Refused, lambda _, now: self.world.host.shard.commit(request, now))
        if error := error_name(response):
            self._say(name, error)
            return
        for partition, refused in response.errors.items():
            self._say(name, f"{partition} {refused.name if refused else 'committed'}")

    async def do_fetch(self, *names: str) -> None:
        asked = OffsetFetch(group_id=GROUP, partitions=[TopicPartition.parse(name) for name in names])
        for found in self.world.fetch_offsets(asked).offsets:
            self._say(str(found.partition), str(found.offset))

    # The world

    async def do_broker(self, **config: str) -> None:
        self.world = GroupWorld(**{key.replace(".", "_"): int(value) for key, value in config.items()})

    async def do_advance(self, duration: str, *, beating: str = "") -> None:
        left_ms = duration_ms(duration)
        while beating and left_ms > HEARTBEAT_MS:
            await self.world.advance(HEARTBEAT_MS)
            left_ms -= HEARTBEAT_MS
            for name in names_of(beating):
                await self._heartbeat(name, is_quiet=True)
        await self.world.advance(left_ms)

    async def do_state(self) -> None:
        group = self.world.host.shard.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            shown = " ".join(f"{self._name_of(each.member_id)}@{each.member_epoch}" for each in group.members.values())
            self._say("group", f"{group.state_name}, epoch {group.epoch}, target {group.target_epoch}: {shown}")
            return
        if not isinstance(group, ClassicGroup):
            self._say("group", "none")
            return
        members = [self._name_of(member_id) for member_id in group.members]
        shown = f"{len(members)} members" if len(members) >= SUMMARY_FROM else " ".join(members) or "nobody"
        self._say("group", f"{group.state_name}, generation {group.generation}: {shown}")

    async def do_log(self) -> None:
        for key, value in self.world.log.written[self._logged :]:
            record = decode(key, value)
            assert record is not None
            self._say("log", show_record(record.key, record.value))
        self._logged = len(self.world.log.written)

    async def do_topic(self, **partitions: str) -> None:
        for topic, count in partitions.items():
            self.world.topics.put(topic, int(count))

    async def do_failover(self) -> None:
        self.world.move()

    async def do_hold(self) -> None:
        self.world.log.hold()

    async def do_release(self) -> None:
        self.world.log.release()

    async def do_break(self) -> None:
        self.world.log.refuse_with = NotEnoughReplicas("as the scenario wants it")

    async def do_repair(self) -> None:
        self.world.log.refuse_with = None

    async def do_delete(self, *topics: str) -> None:
        await self.world.host.write(
            self.world.host.shard.delete_topics({name: self.world.topics.find(name).topic_id for name in topics})
        )

    async def do_disband(self) -> None:
        shard = self.world.host.shard
        response = await self._ask(_Refused, lambda *_: shard.delete(DeleteGroups(group_ids=[GROUP])))
        error = response.errors[GROUP]
        self._say("group", error.name if error else "deleted")

    async def do_forget(self) -> None:
        await self.world.host.write(self.world.host.shard.expire(self.world.clock.time_ms()))

    # How

    def _start(self, name: str, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.setdefault(name, set()).add(task)

    async def _ask(self, refused: Callable[..., Any], decide: Any) -> Any:
        asking: Awaitable[Any] = self.world.host.ask(decide)
        try:
            return await asking
        except KafkaError as error:
            return refused(error=error)

    def _say(self, who: str, what: str) -> None:
        seconds, milliseconds = divmod(self.world.clock.monotonic_ms(), 1000)
        at = f"{seconds}.{milliseconds:03}" if milliseconds else str(seconds)
        self._trace.append((who, f"{at}s {what}"))

    def _name_of(self, member_id: str) -> str:
        """Ids begin with the client's name, or with the instance id of a static member."""
        if member_id in self.consumers:
            return member_id
        prefix = member_id[: -len("-00000000-0000-0000-0000-000000000000")]
        return next((name for name, each in self.clients.items() if prefix in (name, each.static)), prefix)


@dataclass
class _Refused:
    error: KafkaError
