"""The interpreter of the scenarios: what they say, and what the coordinator is seen to do.

A scenario is a text of steps, each a command, a line `----`, what happened, and an empty line. Times are from the
beginning. Commands, with `a` any member's name and `a..z9` a range of names (`m1..m500`):

    config KEY=VALUE                 first of all: the broker's configuration
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
    fetch t-0
    advance 10s [beating=a,b]        beating: they send a heartbeat each 3 seconds
    state                            the group as the coordinator has it
    log                              what has been written since the last `log`
    move                             another broker becomes the coordinator
    hold / release                   what is written is not committed until it is released
    break / repair                   nothing can be written
    expire                           look for offsets that have expired
    delete topic t / delete group

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
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.consumer_member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from sparklog.group.records import decode
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
from sparklog.log.coordinator_records import SUBSCRIPTION, write_value
from support.groups.coordinator import GroupWorld
from support.scenarios.group_consumer import Consumer
from support.scenarios.group_words import (
    SUMMARY_FROM,
    error_name,
    milliseconds,
    names_of,
    options_of,
    read_work,
    show_partitions,
    show_record,
    summarize,
    write_work,
)

GROUP = "g"
HEARTBEAT_MS = 3_000
_LONG_ID = re.compile(r"00000000-0000-0000-0000-0*([0-9a-f]+)")


@dataclass
class Client:
    """What a member knows of itself."""

    name: str
    options: dict[str, str]
    member_id: str = ""
    generation: int = -1
    members: tuple[str, ...] = ()
    """Of its generation, where it is the leader."""

    @property
    def static(self) -> str | None:
        return self.options.get("static")


class Scenario:
    """Runs commands; `step` returns what happened."""

    def __init__(self) -> None:
        self.world = GroupWorld()
        self.clients: dict[str, Client] = {}
        self.consumers: dict[str, Consumer] = {}
        self._trace: list[tuple[str, str]] = []
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}
        self._logged = 0

    async def step(self, command: str) -> list[str]:
        self._trace = []
        verb, *words = command.split()
        await getattr(self, f"_{verb}")(words)
        await self.world.settle()
        return [_LONG_ID.sub(r"\1", line) for line in summarize(self._trace)]

    def close(self) -> None:
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()

    # Members

    async def _config(self, words: list[str]) -> None:
        self.world = GroupWorld(**{name.replace(".", "_"): int(value) for name, value in options_of(words).items()})

    async def _join(self, words: list[str]) -> None:
        for name in names_of(words[0]):
            if "again" not in words:
                self.clients[name] = Client(name, options_of(words[1:]))
            self._start(name, self._do_join(self.clients[name]))
        await self.world.settle()

    async def _do_join(self, client: Client) -> None:
        response = await self._send_join(client)
        if isinstance(response.error, MemberIdRequired):
            client.member_id = response.member_id
            self._say(client.name, "MEMBER_ID_REQUIRED")
            if "vanish" in client.options:
                return
            response = await self._send_join(client)
        if response.error is not None:
            self._say(client.name, response.error.name)
            return
        client.member_id, client.generation = response.member_id, response.generation
        client.members = tuple(self._name_of(member.member_id) for member in response.members)
        self._say(client.name, self._describe(client, response))

    async def _send_join(self, client: Client) -> JoinGroupResponse:
        options = client.options
        topics = options.get("topics", "t").split(",")
        metadata = write_value(0, {"topics": topics, "userData": None}, SUBSCRIPTION)
        request = JoinGroup(
            group_id=GROUP,
            member_id=client.member_id,
            group_instance_id=client.static,
            client_id=client.name,
            client_host="/127.0.0.1",
            protocol_type="consumer",
            protocols=[(protocol, metadata) for protocol in options.get("protocols", "range").split(",")],
            session_timeout_ms=milliseconds(options.get("session", "10s")),
            rebalance_timeout_ms=milliseconds(options.get("rebalance", "60s")),
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

    async def _sync(self, words: list[str]) -> None:
        for name in names_of(words[0]):
            client = self.clients[name]
            given = options_of(words[1:]) or {member: str(at) for at, member in enumerate(client.members)}
            if "all" in given:
                given = dict.fromkeys(client.members, given["all"])
            assignments = {self.clients[member].member_id: write_work(what) for member, what in given.items()}
            self._start(name, self._do_sync(client, assignments if client.members else {}))

    async def _do_sync(self, client: Client, assignments: dict[str, bytes]) -> None:
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

    async def _heartbeat(self, words: list[str]) -> None:
        for name in names_of(words[0]):
            await self._heartbeat_of(name, options_of(words[1:]))

    async def _heartbeat_of(self, name: str, options: dict[str, str], *, is_quiet: bool = False) -> None:
        client = self.clients[name]
        request = Heartbeat(
            group_id=GROUP,
            generation=int(options.get("generation", client.generation)),
            member_id=client.member_id,
            group_instance_id=client.static,
        )
        shard = self.world.host.shard
        response = await self._ask(_Refused, lambda _, now: shard.heartbeat(request, now))
        error = error_name(response)
        if error or not is_quiet:
            self._say(name, error or "ok")

    async def _leave(self, words: list[str]) -> None:
        if words[0] in self.consumers:
            self._start(words[0], self._do_beat(self.consumers[words[0]], LEAVE_EPOCH))
            return
        members = [self.clients[name] for name in names_of(words[0])]
        leaving = [LeavingMember(member_id=each.member_id, group_instance_id=each.static) for each in members]
        request = LeaveGroup(group_id=GROUP, members=leaving)
        response = await self._ask(_Refused, lambda _, now: self.world.host.shard.leave(request, now))
        if error := error_name(response):
            self._say(words[0], error)
            return
        for each, left in zip(members, response.members, strict=True):
            self._say(each.name, left.error.name if left.error else "left")

    async def _crash(self, words: list[str]) -> None:
        for name in names_of(words[0]):
            for task in self._tasks.pop(name, set()):
                task.cancel()

    # Members of the new protocol

    async def _consume(self, words: list[str]) -> None:
        for name in names_of(words[0]):
            self.consumers[name] = Consumer(GROUP, name, options_of(words[1:]))
            self._start(name, self._do_beat(self.consumers[name], JOIN_EPOCH))

    async def _beat(self, words: list[str]) -> None:
        options = options_of(words[1:])
        for name in names_of(words[0]):
            consumer = self.consumers[name]
            consumer.has = consumer.told | (consumer.has if "keeping" in words else set())
            self._start(name, self._do_beat(consumer, int(options.get("epoch", consumer.epoch))))

    async def _away(self, words: list[str]) -> None:
        self._start(words[0], self._do_beat(self.consumers[words[0]], LEAVE_STATIC_EPOCH))

    async def _do_beat(self, consumer: Consumer, epoch: int) -> None:
        shard, request = self.world.host.shard, consumer.request(epoch)
        response = await self._ask(_Refused, lambda _, now: shard.consumer_heartbeat(request, now))
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

    async def _commit(self, words: list[str]) -> None:
        name, *rest = words
        options = options_of(rest)
        generation = options.pop("generation", None)
        client = self.clients.get(name, Client(name, {}))
        request = OffsetCommit(
            group_id=GROUP,
            generation_or_epoch=client.generation if generation is None else int(generation),
            member_id=client.member_id,
            group_instance_id=client.static,
            offsets=[
                OffsetToCommit(partition=TopicPartition.parse(where), offset=int(offset))
                for where, offset in options.items()
            ],
        )
        self._start(name, self._do_commit(name, request))

    async def _do_commit(self, name: str, request: OffsetCommit) -> None:
        response = await self._ask(_Refused, lambda _, now: self.world.host.shard.commit(request, now))
        if error := error_name(response):
            self._say(name, error)
            return
        for partition, refused in response.errors.items():
            self._say(name, f"{partition} {refused.name if refused else 'committed'}")

    async def _fetch(self, words: list[str]) -> None:
        asked = OffsetFetch(group_id=GROUP, partitions=[TopicPartition.parse(word) for word in words])
        self._start("fetch", self._do_fetch(asked))

    async def _do_fetch(self, asked: OffsetFetch) -> None:
        await self.world.host.committed()
        for found in self.world.host.shard.fetch_offsets(asked).offsets:
            self._say(str(found.partition), str(found.offset))

    # The world

    async def _advance(self, words: list[str]) -> None:
        left_ms = milliseconds(words[0])
        beating = options_of(words[1:]).get("beating", "")
        while beating and left_ms > HEARTBEAT_MS:
            await self.world.advance(HEARTBEAT_MS)
            left_ms -= HEARTBEAT_MS
            for name in (name for part in beating.split(",") for name in names_of(part)):
                await self._heartbeat_of(name, {}, is_quiet=True)
        await self.world.advance(left_ms)

    async def _state(self, words: list[str]) -> None:
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

    async def _log(self, words: list[str]) -> None:
        for key, value in self.world.log.written[self._logged :]:
            record = decode(key, value)
            assert record is not None
            self._say("log", show_record(record.key, record.value))
        self._logged = len(self.world.log.written)

    async def _topic(self, words: list[str]) -> None:
        for name, count in options_of(words).items():
            self.world.topics.put(name, int(count))

    async def _move(self, words: list[str]) -> None:
        self.world.move()

    async def _hold(self, words: list[str]) -> None:
        self.world.log.hold()

    async def _release(self, words: list[str]) -> None:
        self.world.log.release()

    async def _break(self, words: list[str]) -> None:
        self.world.log.refuse_with = NotEnoughReplicas("as the scenario wants it")

    async def _repair(self, words: list[str]) -> None:
        self.world.log.refuse_with = None

    async def _delete(self, words: list[str]) -> None:
        shard = self.world.host.shard
        if words[0] == "topic":
            await self.world.host.do(shard.delete_topics(words[1:]))
            return
        response = await self._ask(_Refused, lambda *_: shard.delete(DeleteGroups(group_ids=[GROUP])))
        error = response.errors[GROUP]
        self._say("group", error.name if error else "deleted")

    async def _expire(self, words: list[str]) -> None:
        await self.world.host.do(self.world.host.shard.expire(self.world.clock.time_ms()))

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
