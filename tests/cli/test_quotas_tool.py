"""`sparklog quotas`."""

from __future__ import annotations

import json
from collections.abc import Callable

from support.clients.command_result import CommandResult

Sparklog = Callable[..., CommandResult]


def lines(result: CommandResult) -> list[str]:
    assert result.status == 0, result.err
    return result.out.splitlines()


def shown(sparklog: Sparklog, *options: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines(sparklog("quotas", "list", "--json", *options))]


def test_quotas_are_set_listed_and_removed(sparklog: Sparklog) -> None:
    told = lines(sparklog("quotas", "set", "--user", "alice", "--produce", "10MiB", "--requests", "12.5"))
    assert told == [
        "user alice: producer_byte_rate = 10485760 (bytes per second, of Produce requests to one broker)",
        "user alice: request_percentage = 12.5 (percent of one broker's event loop)",
    ]
    lines(sparklog("quotas", "set", "--user", "alice", "--default-client-id", "--consume", "1MB"))
    lines(sparklog("quotas", "set", "--ip", "10.0.0.7", "--connections", "5"))
    assert shown(sparklog) == [
        {"entity": {"client-id": None, "user": "alice"}, "consumer_byte_rate": 1e6},
        {"entity": {"ip": "10.0.0.7"}, "connection_creation_rate": 5},
        {"entity": {"user": "alice"}, "producer_byte_rate": 10485760, "request_percentage": 12.5},
    ]
    assert len(shown(sparklog, "--user", "alice")) == 2
    table = lines(sparklog("quotas", "list"))
    assert table[0].split() == ["ENTITY", "PRODUCE", "B/S", "CONSUME", "B/S", "REQUESTS", "%", "CONNECTIONS/S"]
    assert "user alice, client-id (default)" in table[1]
    assert "10,485,760" in table[3]

    removed = lines(sparklog("quotas", "remove", "--user", "alice", "--key", "producer_byte_rate"))
    assert removed == ["user alice: removed producer_byte_rate"]
    assert lines(sparklog("quotas", "remove", "--user", "alice")) == ["user alice: removed request_percentage"]
    assert len(shown(sparklog, "--user", "alice")) == 1


def test_what_is_missing_or_wrong_is_named(sparklog: Sparklog) -> None:
    for arguments, why in (
        (("set", "--user", "alice"), "say how much with --produce"),
        (("set", "--produce", "1MB"), "name somebody with --user"),
        (("set", "--ip", "::1", "--user", "alice", "--connections", "1"), "give --ip alone"),
        (("set", "--user", "alice", "--default-user", "--produce", "1MB"), "are two entities"),
        (("set", "--user", "alice", "--produce", "much"), "is not a rate such as 50MiB"),
    ):
        result = sparklog("quotas", *arguments)
        assert result.status == 2
        assert why in result.err
    for arguments, why in (
        (("set", "--user", "alice", "--connections", "1"), "Invalid configuration key connection_creation_rate"),
        (("set", "--user", "alice", "--requests", "-1"), "must be above 0"),
        (("remove", "--user", "nobody"), "has no such quota: see what there is with: sparklog quotas list"),
    ):
        result = sparklog("quotas", *arguments)
        assert result.status == 1
        assert why in result.err


def test_a_list_without_quotas_says_how_to_set_one(sparklog: Sparklog) -> None:
    result = sparklog("quotas", "list")
    assert (result.status, result.out) == (0, "")
    assert "sparklog quotas set" in result.err
