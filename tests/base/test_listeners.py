"""The meaning of `listeners` and the keys that belong to it, and their errors."""

from __future__ import annotations

import pytest

from sparklog.base.addresses import Address
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError
from sparklog.base.listeners import Listener, parse_listeners

MAP = BrokerConfig().listener_security_protocol_map


def parse(listeners: str, advertised: str = "", protocol_map: tuple[str, ...] = MAP) -> tuple[Listener, ...]:
    return parse_listeners(listeners.split(","), advertised.split(",") if advertised else [], protocol_map, "machine")


def test_a_listener_is_advertised_as_it_is_unless_told_otherwise() -> None:
    plain, tls = parse("plaintext://127.0.0.1:9092,SSL://[::1]:9093", "ssl://broker.example:19093")
    assert plain == Listener(
        name="PLAINTEXT",
        address=Address("127.0.0.1", 9092),
        protocol="PLAINTEXT",
        advertised=Address("127.0.0.1", 9092),
    )
    assert (tls.address, tls.advertised) == (Address("::1", 9093), Address("broker.example", 19093))


def test_all_interfaces_are_advertised_under_the_machines_name() -> None:
    (found,) = parse("PLAINTEXT://:9092")
    assert (found.address, found.advertised) == (Address("", 9092), Address("machine", 9092))


def test_names_of_ones_own_get_their_protocol_from_the_map() -> None:
    inside, outside = parse(
        "INSIDE://10.0.0.1:9092,OUTSIDE://10.0.0.1:9093", protocol_map=("inside:plaintext", "OUTSIDE:SASL_SSL")
    )
    assert (inside.protocol, inside.has_tls, inside.has_sasl) == ("PLAINTEXT", False, False)
    assert (outside.protocol, outside.has_tls, outside.has_sasl) == ("SASL_SSL", True, True)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_name_that_is_a_protocols_needs_no_entry(protocol: str) -> None:
    assert parse(f"{protocol}://h:1")[0].protocol == protocol


def test_a_port_may_be_shared_by_ipv4_and_ipv6_and_any_free_one_by_all() -> None:
    assert len(parse("PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092")) == 2
    assert len(parse("PLAINTEXT://h:0,SSL://h:0")) == 2


@pytest.mark.parametrize(
    ("listeners", "advertised", "said"),
    [
        ("127.0.0.1:9092", "", r"listeners: '127.0.0.1:9092' must be NAME://HOST:PORT"),
        ("PLAINTEXT://h", "", r"listeners = 'h': it must be HOST:PORT"),
        ("PLAINTEXT://::1:9092", "", r"an IPv6 host is written in brackets"),
        ("PLAINTEXT://h:1,plaintext://h:2", "", r"listeners names PLAINTEXT twice"),
        ("PLAINTEXT://h:1,SSL://h:1", "", r"PLAINTEXT and SSL have the same port 1"),
        ("PLAINTEXT://127.0.0.1:1,SSL://:1", "", r"PLAINTEXT and SSL have the same port 1"),
        ("OURS://h:1", "", r"no security protocol is known for OURS; name it in listener.security.protocol.map"),
        ("PLAINTEXT://h:1", "SSL://h:2", r"advertised.listeners names SSL, which is not among listeners"),
        ("PLAINTEXT://h:1", "PLAINTEXT://h:0", r"has port 0, where no client can connect"),
        ("PLAINTEXT://h:1", "PLAINTEXT://:1", r"advertised.listeners: PLAINTEXT has no host"),
        ("PLAINTEXT://0.0.0.0:1", "", r"0\.0\.0\.0:1 of PLAINTEXT is no address that clients can connect to"),
        ("PLAINTEXT://[::]:1", "", r"\[::\]:1 of PLAINTEXT is no address that clients can connect to"),
    ],
)
def test_errors_name_the_fault(listeners: str, advertised: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(listeners, advertised)


@pytest.mark.parametrize(
    ("protocol_map", "said"),
    [
        (("PLAINTEXT",), "must be NAME:PROTOCOL"),
        (("A:TLS",), "must be NAME:PROTOCOL"),
        (("A:SSL", "a:PLAINTEXT"), "names A twice"),
        (("A:SSL",), "no security protocol is known for PLAINTEXT"),
    ],
)
def test_an_error_in_the_protocol_map_names_the_fault(protocol_map: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse("PLAINTEXT://h:1", protocol_map=protocol_map)
