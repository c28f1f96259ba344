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
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from group_world import GroupWorld

from sparklog.base.consumer_protocol import Assignment, read_assignment, write_assignment
from sparklog.base.errors import KafkaError, MemberIdRequired, NotEnoughReplicas
from sparklog.base.ids import TopicPartition
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.consumer_member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from sparklog.group.records import GroupKey, GroupValue, OffsetKey, OffsetValue, decode
from sparklog.group.requests import (
    ConsumerGroupHeartbeat,
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

GROUP = "g"
HEARTBEAT_MS = 3_000
SUMMARY_FROM = 8  # answers of one kind within a step
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
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


@dataclass
class Consumer:
    """What a member of the new protocol knows of itself; its name is its id."""

    name: str
    options: dict[str, str]
    epoch: int = JOIN_EPOCH
    has: set[TopicPartition] = field(default_factory=set)
    told: set[TopicPartition] = field(default_factory=set)
    """What it is to have."""

    def request(self, epoch: int) -> ConsumerGroupHeartbeat:
        """All that it says of itself when it joins, and later only what it has."""
        joins, topics = epoch == JOIN_EPOCH, self.options.get("topics", "" if "regex" in self.options else "t")
        return ConsumerGroupHeartbeat(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=epoch,
            group_instance_id=self.options.get("static"),
            client_id=self.name,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=_milliseconds(self.options.get("rebalance", "60s")) if joins else -1,
            subscribed_topic_names=[name for name in topics.split(",") if name] if joins else None,
            subscribed_topic_regex=self.options.get("regex") if joins else None,
            owned_partitions=sorted(self.has),
        )


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
        return [_LONG_ID.sub(r"\1", line) for line in _summarize(self._trace)]

    def close(self) -> None:
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()

    # Members

    async def _config(self, words: list[str]) -> None:
        self.world = GroupWorld(**{name.replace(".", "_"): int(value) for name, value in _options(words).items()})

    async def _join(self, words: list[str]) -> None:
        for name in _names(words[0]):
            if "again" not in words:
                self.clients[name] = Client(name, _options(words[1:]))
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
            session_timeout_ms=_milliseconds(options.get("session", "10s")),
            rebalance_timeout_ms=_milliseconds(options.get("rebalance", "60s")),
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
        for name in _names(words[0]):
            client = self.clients[name]
            given = _options(words[1:]) or {member: str(at) for at, member in enumerate(client.members)}
            if "all" in given:
                given = dict.fromkeys(client.members, given["all"])
            assignments = {self.clients[member].member_id: _assignment(what) for member, what in given.items()}
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
        self._say(client.name, _error(response) or f"gets {_read(response.assignment)}")

    async def _heartbeat(self, words: list[str]) -> None:
        for name in _names(words[0]):
            await self._heartbeat_of(name, _options(words[1:]))

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
        error = _error(response)
        if error or not is_quiet:
            self._say(name, error or "ok")

    async def _leave(self, words: list[str]) -> None:
        if words[0] in self.consumers:
            self._start(words[0], self._do_beat(self.consumers[words[0]], LEAVE_EPOCH))
            return
        members = [self.clients[name] for name in _names(words[0])]
        leaving = [LeavingMember(member_id=each.member_id, group_instance_id=each.static) for each in members]
        request = LeaveGroup(group_id=GROUP, members=leaving)
        response = await self._ask(_Refused, lambda _, now: self.world.host.shard.leave(request, now))
        if error := _error(response):
            self._say(words[0], error)
            return
        for each, left in zip(members, response.members, strict=True):
            self._say(each.name, left.error.name if left.error else "left")

    async def _crash(self, words: list[str]) -> None:
        for name in _names(words[0]):
            for task in self._tasks.pop(name, set()):
                task.cancel()

    # Members of the new protocol

    async def _consume(self, words: list[str]) -> None:
        for name in _names(words[0]):
            self.consumers[name] = Consumer(name, _options(words[1:]))
            self._start(name, self._do_beat(self.consumers[name], JOIN_EPOCH))

    async def _beat(self, words: list[str]) -> None:
        options = _options(words[1:])
        for name in _names(words[0]):
            consumer = self.consumers[name]
            consumer.has = consumer.told | (consumer.has if "keeping" in words else set())
            self._start(name, self._do_beat(consumer, int(options.get("epoch", consumer.epoch))))

    async def _away(self, words: list[str]) -> None:
        self._start(words[0], self._do_beat(self.consumers[words[0]], LEAVE_STATIC_EPOCH))

    async def _do_beat(self, consumer: Consumer, epoch: int) -> None:
        shard, request = self.world.host.shard, consumer.request(epoch)
        response = await self._ask(_Refused, lambda _, now: shard.consumer_heartbeat(request, now))
        if error := _error(response):
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
        self._say(consumer.name, f"epoch {consumer.epoch}, is to have {_show_partitions(response.assignment)}")

    # Offsets

    async def _commit(self, words: list[str]) -> None:
        name, *rest = words
        options = _options(rest)
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
        if error := _error(response):
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
        left_ms = _milliseconds(words[0])
        beating = _options(words[1:]).get("beating", "")
        while beating and left_ms > HEARTBEAT_MS:
            await self.world.advance(HEARTBEAT_MS)
            left_ms -= HEARTBEAT_MS
            for name in (name for part in beating.split(",") for name in _names(part)):
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
            self._say("log", _show(record.key, record.value))
        self._logged = len(self.world.log.written)

    async def _topic(self, words: list[str]) -> None:
        for name, count in _options(words).items():
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


def _error(response: Any) -> str:
    error = getattr(response, "error", None)
    return error.name if error else ""


def _summarize(trace: list[tuple[str, str]]) -> Iterator[str]:
    """One line for each, or one for all those of whom the same can be said, where there are many."""
    said = Counter(what for _, what in trace)
    done: set[str] = set()
    for who, what in trace:
        at, _, text = what.partition(" ")
        if said[what] < SUMMARY_FROM:
            yield f"{at} {who}: {text}"
        elif what not in done:
            done.add(what)
            yield f"{at} {said[what]} times: {text}"


def _show(key: Any, value: Any) -> str:
    match key, value:
        case OffsetKey(), OffsetValue():
            return f"{key.topic}-{key.partition} at {value.offset}"
        case OffsetKey(), None:
            return f"{key.topic}-{key.partition} forgotten"
        case GroupKey(), GroupValue():
            members = ", ".join(f"{each.client_id}={each.assignment.decode()}" for each in value.members[:SUMMARY_FROM])
            return f"group in generation {value.generation}, {len(value.members)} members: {members or 'none'}"
        case GroupKey(), None:
            return "group deleted"
    return repr(key)


def _assignment(what: str) -> bytes:
    if "-" not in what:
        return what.encode()
    return write_assignment(Assignment(partitions=[TopicPartition.parse(each) for each in what.split(",")]))


def _read(assignment: bytes) -> str:
    """What `_assignment` has written."""
    if assignment.startswith(b"\0"):
        return _show_partitions(read_assignment(assignment).partitions)
    return assignment.decode() or "nothing"


def _show_partitions(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(str(each) for each in sorted(partitions)) or "nothing"


def _options(words: list[str]) -> dict[str, str]:
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name: value for name, _, value in pairs}


def _names(text: str) -> list[str]:
    """`a`, `a,b`, or `m1..m500`."""
    first, dots, last = text.partition("..")
    if not dots:
        return text.split(",")
    prefix = first.rstrip("0123456789")
    return [f"{prefix}{number}" for number in range(int(first[len(prefix) :]), int(last[len(prefix) :]) + 1)]


def _milliseconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS[unit]
