"""The page `docs/reference/kafka-apis.md`.

`make reference` writes it. The page lists the APIs of Apache Kafka 4.3 that are served, with their versions, and the
reasons why the others are not. Its sources are the tables of both listeners, the docstrings of the modules in
`broker/apis/`, and all APIs of `kio`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

from kio.schema.index import api_key_map

from sparklog.broker.api import Api
from sparklog.broker.apis import APIS
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.messages import versions_of

_TOKENS = "there are no delegation tokens"
_KRAFT = "sent between KRaft's brokers and controllers, never by clients"
_QUORUM = "there is no KRaft quorum: the cluster store is a file"
_SHARE = "there are no share groups"
_SHARE_STATE = "sent between Kafka's brokers for share groups, never by clients"
_STREAMS = "there are no groups of Kafka Streams' own protocol"

GAPS = {
    "CreateDelegationToken": _TOKENS,
    "RenewDelegationToken": _TOKENS,
    "ExpireDelegationToken": _TOKENS,
    "DescribeDelegationToken": _TOKENS,
    "Vote": _KRAFT,
    "BeginQuorumEpoch": _KRAFT,
    "EndQuorumEpoch": _KRAFT,
    "DescribeQuorum": _QUORUM,
    "AlterPartition": _KRAFT,
    "UpdateFeatures": "nothing depends on a level that the whole cluster agrees on",
    "Envelope": _KRAFT,
    "FetchSnapshot": _KRAFT,
    "BrokerRegistration": _KRAFT,
    "BrokerHeartbeat": _KRAFT,
    "UnregisterBroker": _QUORUM,
    "AllocateProducerIds": _KRAFT,
    "ControllerRegistration": _KRAFT,
    "AssignReplicasToDirs": _KRAFT,
    "ShareGroupHeartbeat": _SHARE,
    "ShareGroupDescribe": _SHARE,
    "ShareFetch": _SHARE,
    "ShareAcknowledge": _SHARE,
    "AddRaftVoter": _QUORUM,
    "RemoveRaftVoter": _QUORUM,
    "UpdateRaftVoter": _KRAFT,
    "InitializeShareGroupState": _SHARE_STATE,
    "ReadShareGroupState": _SHARE_STATE,
    "WriteShareGroupState": _SHARE_STATE,
    "DeleteShareGroupState": _SHARE_STATE,
    "ReadShareGroupStateSummary": _SHARE_STATE,
    "StreamsGroupHeartbeat": _STREAMS,
    "StreamsGroupDescribe": _STREAMS,
    "DescribeShareGroupOffsets": _SHARE,
    "AlterShareGroupOffsets": _SHARE,
    "DeleteShareGroupOffsets": _SHARE,
}
"""API of Kafka that is not served → the reason."""

LOWER = {"InitProducerId": "version 6 is of two-phase commits (KIP-939)"}
"""API that is served up to a lower version than in Kafka → the reason."""

_HEAD = """\
# Supported APIs

What a sparklog broker serves of the protocol of Apache Kafka 4.3. Versions are those of the messages; a client and a
broker choose the newest that both know. What each API does, and where it differs from Kafka's, is written at the top of
its file in `sparklog/broker/apis/`. Clients need rights where there is an
[authorizer](../guides/security.md#access-rules); it checks them in their order.

"""


def kafka_apis() -> dict[str, int]:
    """Return the keys of all APIs of Kafka by name."""
    return {_camel_case(api_key_map[key]): key for key in sorted(api_key_map)}


def page() -> str:
    """Return the text of the page."""
    served = {translation.api.name: translation.api for translation in TRANSLATIONS}
    everything = kafka_apis()
    gaps = {name: key for name, key in everything.items() if name not in served}
    return "\n".join(
        [
            f"{_HEAD}## Served: {len(served)} of {len(everything)}\n",
            *_table(
                ("key", "API", "Kafka", "sparklog", "what it does", "rights"),
                (_served(key, served[name]) for name, key in everything.items() if name in served),
            ),
            "\n## Over gRPC only\n",
            *_table(
                ("API", "what it does", "rights"),
                ((api.name, _summary(api), _rights(api)) for api in APIS if api.key is None),
            ),
            f"\n## Not served: {len(gaps)}\n",
            *_table(
                ("key", "API", "Kafka", "why not"),
                ((str(key), name, _range(*versions_of(key)), GAPS[name]) for name, key in gaps.items()),
            ),
            "",
        ]
    )


def _served(key: int, api: Api[object, object]) -> tuple[str, ...]:
    what = _summary(api)
    if api.name in LOWER:
        what += f"; {LOWER[api.name]}"
    return str(key), api.name, _range(*versions_of(key)), _range(*api.versions), what, _rights(api)


def _rights(api: Api[object, object]) -> str:
    """Return the rights that an authorizer requires."""
    return "; ".join(dict.fromkeys(map(str, api.rights))) or "none"


def _summary(api: Api[object, object]) -> str:
    """Return the summary of an API: its own, or the first sentence of its file, without the API's name and key."""
    if api.summary:
        return api.summary
    head = (sys.modules[api.handle.__module__].__doc__ or "").strip().partition("\n\n")[0]
    sentence = " ".join(head.split()).removeprefix(f"{api.name}: ").partition(". ")[0]
    return re.sub(r" \(key [^)]*\)", "", sentence).rstrip(".")


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield "|" + " --- |" * len(titles)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


if __name__ == "__main__":
    sys.stdout.write(page())
