"""ElectLeaders: elect the preferred leader of partitions, or any live replica (key 43, versions 0 to 2).

- Any broker accepts the request and forwards it to the controller. It answers once it knows the new leaders itself;
  partitions for which that takes longer than the request's timeout get REQUEST_TIMED_OUT.
- PREFERRED: the first replica becomes leader if it is alive and in sync, else PREFERRED_LEADER_NOT_AVAILABLE.
- UNCLEAN, for partitions without leader: any live replica may become leader, even an out-of-sync one, which loses the
  records it has not copied. ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica is alive.
- ELECTION_NOT_NEEDED if the preferred replica already leads or, for UNCLEAN, if there is a leader. Without a list of
  partitions, the response has only those that needed an election, as in Kafka.
- UNKNOWN_TOPIC_OR_PARTITION; INVALID_TOPIC_EXCEPTION for a partition whose topic is being deleted. A topic name that is
  too long is not forwarded: the request to the controller repeats the name for each partition, so 30,000 characters of
  a client's request could become 10,000 times as many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field, structs

from sparklog.base.acls import AclOperation
from sparklog.base.clock import Clock
from sparklog.base.errors import ElectionNotNeeded, KafkaError, RequestTimedOut, UnknownTopicOrPartition
from sparklog.base.ids import MAX_TOPIC_LENGTH, TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.peers import ask_controller
from sparklog.broker.rights import on_cluster
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.peers import Peers
from sparklog.controller.controller import Controller


class ElectLeadersRequest(Struct, frozen=True, kw_only=True):
    partitions: Sequence[TopicPartition] | None
    """None: all of them."""
    is_unclean: bool = False
    timeout_ms: int = 60_000
    is_for_controller: bool = False
    """Forwarded by a broker: only the controller accepts it."""


class ElectLeadersResponse(Struct, frozen=True, kw_only=True):
    errors: Mapping[TopicPartition, KafkaError | None]
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The elected leaders."""


async def handle(
    request: ElectLeadersRequest, *, clock: Clock, controller: Controller, metadata: MetadataCache, peers: Peers
) -> ElectLeadersResponse:
    """Return the error of each partition, or None, and the new leaders. Raises as `ask_controller` does.

    With `is_for_controller`, hold the elections; raises NotController if this broker is not the controller.
    """
    if request.is_for_controller:
        return await _elect(controller, request)
    deadline_ms = clock.monotonic_ms() + request.timeout_ms
    topics = {topic for topic, _ in request.partitions or ()}
    too_long = {topic for topic in topics if len(topic) > MAX_TOPIC_LENGTH}
    impossible = [name for name in request.partitions or () if name.topic in too_long] if too_long else []
    wanted = request.partitions
    if wanted and impossible:
        wanted = [name for name in wanted if name.topic not in too_long]
    response: ElectLeadersResponse = await ask_controller(
        structs.replace(request, partitions=wanted, is_for_controller=True),
        clock=clock,
        metadata=metadata,
        peers=peers,
        timeout_ms=request.timeout_ms,
    )
    leaders = response.leaders
    left_ms = max(deadline_ms - clock.monotonic_ms(), 0)
    await metadata.wait_until(lambda: not _unseen(metadata, leaders), left_ms)
    late = RequestTimedOut("the new leader is elected, but this broker has not been told of it yet")
    unknown = UnknownTopicOrPartition(f"no topic has a name of more than {MAX_TOPIC_LENGTH} characters")
    errors = {
        **response.errors,
        **dict.fromkeys(impossible, unknown),
        **dict.fromkeys(_unseen(metadata, leaders), late),
    }
    return structs.replace(response, errors=errors)


async def _elect(controller: Controller, request: ElectLeadersRequest) -> ElectLeadersResponse:
    elected = await controller.ask(
        lambda active: active.operations.elect_leaders(request.partitions, is_unclean=request.is_unclean)
    )
    if request.partitions is None:
        elected = {name: each for name, each in elected.items() if not isinstance(each, ElectionNotNeeded)}
    errors: dict[TopicPartition, KafkaError | None] = {}
    leaders: dict[TopicPartition, int] = {}
    for name, each in elected.items():
        if isinstance(each, KafkaError):
            errors[name] = each
        else:
            errors[name], leaders[name] = None, each
    return ElectLeadersResponse(errors=errors, leaders=leaders)


def _unseen(metadata: MetadataCache, leaders: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions for which this broker still knows another leader; deleted partitions do not count."""
    return [
        name
        for name, leader in leaders.items()
        if (info := metadata.find_partition(name)) is not None and info.leader != leader
    ]


API = Api(name="ElectLeaders", handle=handle, rights=(on_cluster(AclOperation.ALTER),), key=43, versions=(0, 2))
