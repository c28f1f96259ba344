"""InitProducerId over Kafka's wire."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from support.kafka.connection import Wire

INIT_PRODUCER_ID = 22


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(wire: Wire, version: int) -> None:
    ask = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    first, second = (wire.send(INIT_PRODUCER_ID, version, **ask) for _ in range(2))
    assert first.error_code is second.error_code is ErrorCode.none
    assert second.producer_id == first.producer_id + 1 > 0
    assert first.producer_epoch == second.producer_epoch == 0


def test_who_has_an_id_already_gets_a_new_one(wire: Wire) -> None:
    response = wire.send(INIT_PRODUCER_ID, 5, transactional_id=None, producer_id=77_777, producer_epoch=3)
    assert response.error_code is ErrorCode.none
    assert response.producer_id != 77_777
    assert response.producer_epoch == 0


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.invalid_request),
        ({"transactional_id": None, "producer_id": 5, "producer_epoch": -1}, ErrorCode.invalid_request),
    ],
)
def test_what_cannot_be_given_is_refused(wire: Wire, asked: dict[str, object], error: ErrorCode) -> None:
    response = wire.send(INIT_PRODUCER_ID, 5, **({"producer_id": -1, "producer_epoch": -1} | asked))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (error, -1, -1)
