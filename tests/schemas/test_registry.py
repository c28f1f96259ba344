"""The client of a schema registry, over HTTP and HTTPS, and its errors if the registry gives no schema."""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from sparklog.base.errors import ConfigError, RegistryError
from sparklog.schemas.registry import ATTEMPTS, Registry, SchemaText, UnknownSchema, subject_name
from sparklog.schemas.registry_options import RegistryOptions
from support.schemas.registry import FakeRegistry, schema_registry


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with schema_registry() as running:
        yield running


def client(registry: FakeRegistry, pauses: list[float] | None = None, **options: Any) -> Registry:
    return Registry(RegistryOptions(urls=(registry.url,), **options), ([] if pauses is None else pauses).append)


def test_schemas_by_number_by_guid_and_by_subject(registry: FakeRegistry) -> None:
    first = registry.register("a/b-value", "string")
    second = registry.register("a/b-value", "long")
    asked = client(registry)
    assert asked.by_id(first) == asked.by_id(registry.guid(first)) == SchemaText("AVRO", "string")
    latest = asked.version("a/b-value")
    assert (latest.version, latest.ids, latest.schema.text) == (2, (second, registry.guid(second)), "long")
    assert [each.schema.text for each in asked.versions("a/b-value", 10)] == ["string", "long"]
    assert [each.schema.text for each in asked.versions("a/b-value", 1)] == ["long"]


def test_schemas_are_registered_once_and_looked_up(registry: FakeRegistry) -> None:
    asked = client(registry)
    first, second = SchemaText("AVRO", '"string"'), SchemaText("PROTOBUF", 'syntax = "proto3";')
    with pytest.raises(UnknownSchema, match="has no subject a/b-value with this schema: Schema not found"):
        asked.lookup("a/b-value", first)
    number = asked.register("a/b-value", first)
    assert asked.register("a/b-value", first) == asked.lookup("a/b-value", first) == number
    other = asked.register("a/b-value", second)
    assert (asked.by_id(number), asked.by_id(other)) == (first, second)
    assert registry.subjects == {"a/b-value": [number, other]}


def test_a_schema_that_the_registry_refuses_is_not_registered(registry: FakeRegistry) -> None:
    for status in (409, 422):
        registry.failures = [status]
        with pytest.raises(RegistryError, match="does not take subject s with this schema: in trouble"):
            client(registry).register("s", SchemaText("AVRO", "{"))


def test_references_come_with_the_schema_those_that_others_need_first(registry: FakeRegistry) -> None:
    registry.register("a", "A")
    registry.register("b", "B", [{"name": "a", "subject": "a", "version": 1}])
    both = [{"name": "b", "subject": "b", "version": 1}, {"name": "a", "subject": "a", "version": 1}]
    number = registry.register("c", "C", both)
    asked = client(registry)
    assert asked.by_id(number) == SchemaText("AVRO", "C", ("A", "B"), ("a", "b"))
    before = len(registry.requests)
    assert asked.by_id(number).references == ("A", "B")
    assert len(registry.requests) == before + 1


def test_a_schema_that_refers_to_itself_is_refused(registry: FakeRegistry) -> None:
    number = registry.register("a", "A", [{"name": "a", "subject": "a", "version": 1}])
    with pytest.raises(RegistryError, match="a version 1 refers to itself"):
        client(registry).by_id(number)


def test_what_the_registry_does_not_have_is_named(registry: FakeRegistry) -> None:
    with pytest.raises(UnknownSchema, match=f"{registry.url}.* has no schema 7: Schema not found"):
        client(registry).by_id(7)
    with pytest.raises(UnknownSchema, match="has no subject nobody-value"):
        client(registry).version("nobody-value")


def test_trouble_is_tried_again_with_growing_pauses(registry: FakeRegistry) -> None:
    number = registry.register("s", "string")
    registry.failures = [503, 429]
    pauses: list[float] = []
    assert client(registry, pauses).by_id(number).text == "string"
    assert pauses == [0.5, 1.0]
    registry.failures = [500] * ATTEMPTS
    with pytest.raises(RegistryError, match="HTTP status 500: in trouble"):
        client(registry).by_id(number)
    assert registry.failures == []


def test_another_url_is_asked_if_the_first_does_not_answer(registry: FakeRegistry) -> None:
    number = registry.register("s", "string")
    with schema_registry() as gone:
        pass
    options = RegistryOptions(urls=(gone.url, registry.url))
    assert Registry(options).by_id(number).text == "string"
    pauses: list[float] = []
    with pytest.raises(RegistryError, match=r"does not answer: .*check schema\.registry\.url"):
        Registry(RegistryOptions(urls=(gone.url,)), pauses.append).by_id(number)
    assert len(pauses) == ATTEMPTS - 1


@pytest.mark.parametrize("status", [302, 307])
def test_credentials_do_not_follow_redirects(registry: FakeRegistry, status: int) -> None:
    registry.failures = [status]
    with pytest.raises(RegistryError, match=f"HTTP status {status}"):
        client(registry, user_info="me:secret").by_id(1)
    assert registry.requests == ["/schemas/ids/1"]


@pytest.mark.parametrize(
    ("options", "header"),
    [({"user_info": "me:pass:word"}, "Basic bWU6cGFzczp3b3Jk"), ({"token": "t.o.k"}, "Bearer t.o.k")],
)
def test_credentials(registry: FakeRegistry, options: dict[str, str], header: str) -> None:
    number = registry.register("s", "string")
    registry.authorization = header
    assert client(registry, **options).by_id(number).text == "string"
    with pytest.raises(RegistryError, match=r"status 401: check schema\.registry\.basic\.auth\.user\.info"):
        client(registry).by_id(number)
    shown = repr(RegistryOptions(urls=("http://x",), **options))
    assert not any(secret in shown for secret in options.values())


@pytest.mark.slow
def test_tls_with_an_own_authority_and_a_client_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    trusted, own, key_alone = tmp_path / "ca.pem", tmp_path / "client.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(trusted)
    certificate = authority.issue_cert("client.example")
    certificate.private_key_and_cert_chain_pem.write_to_path(own)
    certificate.private_key_pem.write_to_path(key_alone)
    with schema_registry(context) as registry:
        number = registry.register("s", "string")
        assert client(registry, truststore=str(trusted), keystore=str(own)).by_id(number).text == "string"
        for options in ({}, {"truststore": str(trusted)}):
            with pytest.raises(RegistryError, match="does not answer"):
                client(registry, **options).by_id(number)
    with pytest.raises(ConfigError, match=r"schema\.registry\.ssl\.truststore\.location .* No such file"):
        client(registry, truststore=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match="a keystore has a certificate and its key"):
        client(registry, keystore=str(key_alone))


@pytest.mark.parametrize("content", ["[]", "{}", '{"schema": 5}', '{"schema": "a", "references": [{}]}'])
def test_answers_of_something_else_are_refused(content: str) -> None:
    from support.issuer import http_server

    with http_server() as answers:
        answers.body = content.encode()
        with pytest.raises(RegistryError, match="schema registry at http"):
            Registry(RegistryOptions(urls=(answers.url,))).by_id(1)
        answers.body = b"<html>"
        with pytest.raises(RegistryError, match="is it a registry of schemas"):
            Registry(RegistryOptions(urls=(answers.url,))).versions("s", 1)


def test_options_travel_to_tasks() -> None:
    options = RegistryOptions(urls=("http://a",), token="t")
    assert pickle.loads(pickle.dumps(options)) == options


def test_subjects_of_the_naming_strategies() -> None:
    for strategy, expected in (("topic", "t-key"), ("record", "shop.Order"), ("topic_record", "t-shop.Order")):
        assert subject_name(strategy, topic="t", record="shop.Order", is_key=True) == expected
    assert subject_name("topic", topic="t", record="", is_key=False) == "t-value"
