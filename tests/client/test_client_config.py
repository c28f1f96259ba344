"""The configuration of clients."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.base.errors import ConfigError
from sparklog.client.config import ConsumerConfig, ProducerConfig
from sparklog.records.batch import Codec


def test_values_may_be_given_as_text() -> None:
    config = ProducerConfig.parse({"acks": "-1", "batch_size": "65536", "bootstrap_servers": "a:1, b:2"})

    assert (config.acks, config.batch_size, config.bootstrap_servers) == ("all", 65536, ("a:1", "b:2"))


def test_values_may_be_given_as_they_are() -> None:
    config = ProducerConfig.parse({"acks": 1, "bootstrap_servers": ["a:1", "b:2"], "compression_type": "zstd"})

    assert (config.acks, config.codec, config.bootstrap_servers) == ("1", Codec.ZSTD, ("a:1", "b:2"))


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'lingerms'; did you mean linger_ms\?"):
        ProducerConfig.parse({"lingerms": 5})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"acks": 2}, "acks = 2: it must be all, 1 or 0"),
        ({"linger_ms": -1}, "linger_ms = -1: it must be a whole number from 0"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"compression_type": "brotli"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"bootstrap_servers": "localhost"}, "HOST:PORT"),
        ({"bootstrap_servers": "localhost:99999"}, "HOST:PORT"),
        ({"bootstrap_servers": []}, "HOST:PORT"),
        ({"partitioner": "murmur2"}, "a function, or None"),
        ({"interceptors": print}, "a list"),
        ({"delivery_timeout_ms": 10, "linger_ms": 20}, "at least linger_ms"),
    ],
)
def test_a_value_that_is_not_allowed_says_what_is(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ProducerConfig.parse(options)


def test_booleans_are_booleans() -> None:
    assert ConsumerConfig.parse({"check_crcs": False}).check_crcs is False
    with pytest.raises(ConfigError, match="true or false"):
        ConsumerConfig.parse({"check_crcs": 0})
