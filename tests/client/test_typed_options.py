"""The typed keyword arguments of clients equal the options of their configurations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparklog import client
from sparklog.client import aio, config, options
from sparklog.client.assignors import Assignor
from support.type_checker import errors_in

OPTIONS = {
    options.ClientOptions: config.ClientConfig,
    options.ProducerOptions: config.ProducerConfig,
    options.ConsumerOptions: config.ConsumerConfig,
    options.AdminOptions: config.AdminConfig,
}
CLIENTS = {
    options.ProducerOptions: (client.Producer, aio.AsyncProducer),
    options.ConsumerOptions: (client.Consumer, aio.AsyncConsumer),
    options.AdminOptions: (client.Admin, client.Maintenance, aio.AsyncAdmin, aio.AsyncMaintenance),
}
GIVEN = {
    tuple[str, ...]: str | list[str] | tuple[str, ...],
    tuple[Assignor, ...]: str | Sequence[str | Assignor],
    tuple[Any, ...]: list[Any] | tuple[Any, ...],
}
"""How an option of a type may be given, where that is not this type alone."""
ACKS = {"acks": str | int}
"""Kept as Kafka writes it, given as a number by most."""

USES = """
from typing import Any
from sparklog.client import Admin, Consumer, Producer, ProducerOptions
from sparklog.client.aio import AsyncConsumer

options: ProducerOptions = {"bootstrap_servers": "127.0.0.1:9094", "acks": 1, "linger_ms": 5}
settings: dict[str, Any] = {}
Producer(**options)
Producer(bootstrap_servers=["127.0.0.1:9094"], partitioner=lambda topic, key, partitions: 0)
Consumer(**settings, group_id=None)
AsyncConsumer(partition_assignment_strategy=["range", "sticky"])
Admin(**settings)
"""
MISUSES = """
from sparklog.client import Admin, Consumer, Producer
from sparklog.client.aio import AsyncProducer
from sparklog.client import Produser
Producer(linger_sm=5)
AsyncProducer(linger_ms=[5])
Consumer(enable_auto_commit="no")
Admin(group_id="billing")
"""


@pytest.mark.parametrize("typed", OPTIONS, ids=lambda typed: typed.__name__)
def test_they_have_the_names_and_the_types_of_the_configuration(typed):
    kept = typing.get_type_hints(OPTIONS[typed])
    given = {name: ACKS.get(name, GIVEN.get(kind, kind)) for name, kind in kept.items()}
    assert typing.get_type_hints(typed) == given
    assert not typed.__required_keys__


@pytest.mark.parametrize("typed", CLIENTS, ids=lambda typed: typed.__name__)
def test_every_client_takes_them(typed):
    for each in CLIENTS[typed]:
        parameters = inspect.signature(each.__init__, eval_str=True).parameters
        assert parameters["options"].annotation == typing.Unpack[typed]


@pytest.mark.slow
def test_a_type_checker_takes_what_clients_take_and_nothing_else(tmp_path: Path) -> None:
    found = errors_in(tmp_path, uses=USES, misuses=MISUSES)
    assert found == [("misuses", str(line)) for line in range(4, 9)]
