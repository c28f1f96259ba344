"""A new leader without a known high watermark answers with an error that the version of the client knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog.base.errors import KafkaError, LeaderNotAvailable, OffsetNotAvailable
from sparklog.broker.apis.list_offsets import LATEST, ListOffsetsRequest, ListOffsetsResponse, PartitionOffset
from sparklog.server.kafka.apis.list_offsets import TRANSLATION
from sparklog.server.kafka.translation import KafkaCall


async def serve_new_leader(_: object, request: ListOffsetsRequest) -> ListOffsetsResponse:
    refused = [
        PartitionOffset(topic=each.topic, partition=each.partition, error=OffsetNotAvailable("not yet"))
        for each in request.partitions
    ]
    return ListOffsetsResponse(partitions=refused)


@pytest.mark.parametrize(("version", "expected"), [(4, LeaderNotAvailable), (5, OffsetNotAvailable)])
async def test_clients_of_any_age_know_that_they_may_ask_again(version: int, expected: type[KafkaError]) -> None:
    part = SimpleNamespace(partition_index=0, timestamp=LATEST)
    request: Any = SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[part])])
    call = SimpleNamespace(version=version, serve=serve_new_leader, answer=lambda **fields: fields)
    answer: Any = await TRANSLATION.serve(cast(KafkaCall, call), request)
    assert isinstance(answer["topics"][0]["partitions"][0]["error_code"], expected)
