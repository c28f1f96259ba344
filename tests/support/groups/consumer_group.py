"""A group of the new protocol with its topics, and members that speak it, without a broker."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID, uuid5

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import InvalidRegularExpression, UnknownTopicId
from sparklog.base.ids import TopicPartition
from sparklog.base.pattern import compile_pattern
from sparklog.group.consumer_group import ConsumerGroup, GroupEdit
from sparklog.group.consumer_heartbeat import ConsumerHeartbeats
from sparklog.group.consumer_member import LEAVE_STATIC_EPOCH
from sparklog.group.requests import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse
from sparklog.group.topic_pattern import TopicMatches
from sparklog.offsets_topic.records import decode, encode
from sparklog.runtime.state_machine import CancelTimer, DecisionBuilder, SetTimer

GROUP = "readers"
AT_ONCE = BrokerConfig(group_consumer_assignment_interval_ms=0)


@dataclass(frozen=True)
class FakeTopic:
    name: str
    topic_id: UUID
    partitions: range


class FakeTopics:
    """What a broker's metadata cache is to groups."""

    def __init__(self, **counts):
        self.version = 0
        self._topics = {}
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name, count, generation=0):
        self._topics[name] = FakeTopic(name, uuid5(UUID(int=generation), name), range(count))
        self.version += 1

    def remove(self, name):
        del self._topics[name]
        self.version += 1

    def __iter__(self):
        return iter([self._topics[name] for name in sorted(self._topics)])

    def __contains__(self, name):
        return name in self._topics

    def find(self, name):
        return self._topics.get(name)

    def get_by_id(self, topic_id):
        for topic in self:
            if topic.topic_id == topic_id:
                return topic
        raise UnknownTopicId(str(topic_id))


@dataclass
class World:
    """Records go through their bytes into the group; `log` keeps them all."""

    topics: FakeTopics
    config: BrokerConfig = AT_ONCE
    now_ms: int = 1_000_000
    group_id: str = GROUP

    def __post_init__(self):
        self.group = ConsumerGroup(self.group_id, self.topics)
        self.heartbeats = ConsumerHeartbeats(self.config, self.topics, lambda: "chosen")
        self.log = []
        self.timers = {}

    def ask(self, request):
        self.heartbeats.check(request)
        draft = DecisionBuilder()
        edit = GroupEdit(self.group, draft)
        if request.member_epoch >= 0:
            response = self.heartbeats.heartbeat(edit, request, self.now_ms, self.matches(request))
        else:
            member = self.heartbeats.leaving_member(self.group, request)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                self.heartbeats.go_away(edit, member)
            else:
                self.heartbeats.remove(edit, [member.member_id])
            response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        self.apply(draft)
        return response

    def matches(self, request):
        """The topics of all regular expressions, as the shell hands them in."""
        texts = {*self.group.regex_counts(), request.subscribed_topic_regex} - {None, ""}
        topics = {}
        for text in texts:
            with suppress(InvalidRegularExpression):
                topics[text] = [each.name for each in self.topics if compile_pattern(text).matches(each.name)]
        return TopicMatches(version=self.topics.version, topics=topics)

    def put_out(self, *member_ids):
        draft = DecisionBuilder()
        self.heartbeats.remove(GroupEdit(self.group, draft), member_ids)
        self.apply(draft)

    def apply(self, draft):
        for record in draft.records:
            self.log.append(encode(record))
            self.group.replay(decode(*self.log[-1]))
        for timer in draft.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.delay_ms
            elif isinstance(timer, CancelTimer):
                self.timers.pop(timer.key, None)

    def fire(self, timer):
        del self.timers[timer]
        draft = DecisionBuilder()
        self.heartbeats.update_target(GroupEdit(self.group, draft), self.now_ms)
        self.apply(draft)

    def reloaded(self):
        """The group as another coordinator would read it from the log."""
        group = ConsumerGroup(self.group_id, self.topics)
        for record in self.log:
            group.replay(decode(*record))
        return group


class Client:
    """A member that does what it is told, at once."""

    def __init__(self, world, member_id, *topics, **described):
        self.world = world
        self.member_id = member_id
        self.described = {
            "subscribed_topic_names": topics or None,
            "rebalance_timeout_ms": 60_000,
            **described,
        }
        self.epoch = 0
        self.owned = set()
        self.says_all = False
        """As clients do once an answer was lost: then the assignment is in the next."""

    def request(self, **fields):
        return ConsumerGroupHeartbeat(
            **{
                "group_id": self.world.group_id,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "client_id": "client",
                "client_host": "/127.0.0.1",
                "group_instance_id": self.described.get("group_instance_id"),
                "owned_partitions": sorted(self.owned),
                **fields,
            }
        )

    def join(self, **fields):
        self.epoch, self.owned = 0, set()
        return self.take(self.world.ask(self.request(**{**self.described, **fields})))

    def beat(self, **fields):
        if self.says_all:
            member = self.world.group.get(self.member_id)
            fields = {
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
                "subscribed_topic_names": sorted(member.subscribed_topic_names),
                **fields,
            }
        response = self.world.ask(self.request(**fields))
        self.says_all = response.assignment is None and self.says_all
        return self.take(response)

    def take(self, response):
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = set(response.assignment)
        return response

    def leave(self, epoch=-1):
        return self.world.ask(self.request(member_epoch=epoch))


def settle(*clients):
    """Let all beat until nothing changes."""
    for _ in range(20):
        before = [(client.epoch, set(client.owned)) for client in clients]
        for client in clients:
            client.beat()
        if before == [(client.epoch, client.owned) for client in clients]:
            return
    raise AssertionError("the group does not come to rest")


def partitions(topic, *numbers):
    return {TopicPartition(topic, number) for number in numbers}
