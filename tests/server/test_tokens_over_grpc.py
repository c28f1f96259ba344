"""Tokens of OAUTHBEARER over gRPC, by bare stubs: every kind of call, passwords beside them, expiry."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc, records_pb2
from support.issuer import AUDIENCE, ISSUER, Issuer
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_carol="carol-secret";'
VALID_S = 4
"""Long enough for a first call on a busy machine."""
Metadata = list[tuple[str, str]]


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker(
        grpc_security_protocol="SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,OAUTHBEARER",
        plain_sasl_jaas_config=LOGIN,
        sasl_oauthbearer_jwks_endpoint_url=issuer.publish(tmp_path_factory.mktemp("keys") / "keys.json"),
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience=AUDIENCE,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:alice;User:carol",
        connection_failed_authentication_delay_ms=1,
    ) as broker:
        yield broker


@pytest.fixture
def channel(broker: RunningBroker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.bootstrap) as channel:
        yield channel


def bearer(token: str) -> Metadata:
    return [("authorization", f"Bearer {token}")]


def list_topics(channel: grpc.Channel, metadata: Metadata) -> list[str]:
    request = admin_pb2.ListTopicsRequest()
    found = admin_pb2_grpc.AdminStub(channel).ListTopics(request, timeout=PATIENCE_S, metadata=metadata)
    return [topic.name for topic in found.topics]


def status_of(channel: grpc.Channel, metadata: Metadata) -> grpc.StatusCode:
    try:
        list_topics(channel, metadata)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def produced(topic: str, number: int) -> log_pb2.ProduceRequest:
    record = records_pb2.Record(value=b"hello")
    part = log_pb2.PartitionProduce(topic=topic, partition=0, records=records_pb2.RecordList(records=[record]))
    return log_pb2.ProduceRequest(correlation_id=number, partitions=[part])


def test_a_token_is_good_for_every_kind_of_call(channel: grpc.Channel, issuer: Issuer) -> None:
    metadata, topic = bearer(issuer.token()), "every-kind"
    created = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=topic)])
    admin_pb2_grpc.AdminStub(channel).CreateTopics(created, timeout=PATIENCE_S, metadata=metadata)
    assert topic in list_topics(channel, metadata)

    log = log_pb2_grpc.LogStub(channel)
    answers = log.ProduceStream(iter([produced(topic, 7)]), timeout=PATIENCE_S, metadata=metadata)
    assert [(answer.correlation_id, answer.partitions[0].error.code) for answer in answers] == [(7, 0)]
    part = log_pb2.PartitionFetch(topic=topic, partition=0, fetch_offset=0)
    for form in (log_pb2.RECORDS, log_pb2.ARROW):
        asked = log_pb2.FetchRequest(partitions=[part], format=form, max_wait_ms=0)
        [found] = log.Fetch(asked, timeout=PATIENCE_S, metadata=metadata).partitions
        assert found.error.code == 0
        assert found.records.records or found.arrow
    subscribed = log.Subscribe(
        log_pb2.SubscribeRequest(partitions=[part], format=log_pb2.RECORDS), timeout=PATIENCE_S, metadata=metadata
    )
    assert next(subscribed).partitions[0].records.records[0].value == b"hello"
    subscribed.cancel()


def test_a_token_gives_the_rights_of_its_user_and_no_others(channel: grpc.Channel, issuer: Issuer) -> None:
    stub = admin_pb2_grpc.AdminStub(channel)
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="bobs")])
    [refused] = stub.CreateTopics(request, timeout=PATIENCE_S, metadata=bearer(issuer.token("bob"))).topics
    assert refused.error.name == "TOPIC_AUTHORIZATION_FAILED"


def test_passwords_are_good_beside_tokens(channel: grpc.Channel) -> None:
    for password, status in (("carol-secret", grpc.StatusCode.OK), ("wrong", grpc.StatusCode.UNAUTHENTICATED)):
        basic = base64.b64encode(f"carol:{password}".encode()).decode()
        assert status_of(channel, [("authorization", f"Basic {basic}")]) is status


@pytest.mark.parametrize("kind", ["expired", "another issuer's", "unsigned", "empty", "none", "digest"])
def test_any_other_token_is_refused(channel: grpc.Channel, issuer: Issuer, kind: str) -> None:
    metadata = {
        "expired": bearer(issuer.token(valid_s=-1)),
        "another issuer's": bearer(Issuer().token()),
        "unsigned": bearer(issuer.token().rpartition(".")[0] + "."),
        "empty": bearer(""),
        "none": [],
        "digest": [("authorization", "Digest " + issuer.token())],
    }[kind]
    assert status_of(channel, metadata) is grpc.StatusCode.UNAUTHENTICATED


def test_a_token_is_good_until_it_expires(channel: grpc.Channel, issuer: Issuer) -> None:
    expires_s = time.time() + VALID_S
    metadata = bearer(issuer.token(exp=expires_s))
    assert status_of(channel, metadata) is grpc.StatusCode.OK

    wait_until(lambda: status_of(channel, metadata) is grpc.StatusCode.UNAUTHENTICATED, "it has expired")
    assert time.time() >= expires_s - 0.01


@pytest.mark.parametrize("kind", ["Subscribe", "ProduceStream"])
def test_a_stream_ends_when_its_token_expires(channel: grpc.Channel, issuer: Issuer, kind: str) -> None:
    log, expires_s = log_pb2_grpc.LogStub(channel), time.time() + VALID_S
    metadata, topic = bearer(issuer.token(exp=expires_s)), f"stream-{kind}"
    created = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=topic)])
    admin_pb2_grpc.AdminStub(channel).CreateTopics(created, timeout=PATIENCE_S, metadata=metadata)
    answers: Any
    if kind == "Subscribe":
        part = log_pb2.PartitionFetch(topic=topic, partition=0, fetch_offset=0)
        request = log_pb2.SubscribeRequest(partitions=[part])
        answers = log.Subscribe(request, timeout=PATIENCE_S, metadata=metadata)
    else:
        is_over = threading.Event()

        def requests() -> Iterator[log_pb2.ProduceRequest]:
            yield produced(topic, 1)
            is_over.wait(PATIENCE_S)

        answers = log.ProduceStream(requests(), timeout=PATIENCE_S, metadata=metadata)
        answers.add_callback(is_over.set)
    with pytest.raises(grpc.RpcError) as ended:
        list(answers)
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "the token of this stream has expired" in ended.value.details()
    assert time.time() >= expires_s - 0.01
