"""OAUTHBEARER on a Kafka listener: frame by frame, and by client libraries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AIOKafkaTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider
from kio.schema.errors import ErrorCode

from sparklog.base.errors import ConfigError
from sparklog.testing import RunningBroker, start_broker
from support.issuer import AUDIENCE, ISSUER, Issuer
from support.kafka.connection import Wire
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 3, 17, 36
INVALID_TOKEN = '{"status":"invalid_token"}'


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def start(issuer: Issuer, folder: Path, **config: Any) -> RunningBroker:
    return start_broker(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=issuer.publish(folder / "keys.json"),
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience=AUDIENCE,
        connection_failed_authentication_delay_ms=1,
        **config,
    )


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start(issuer, tmp_path_factory.mktemp("keys")) as broker:
        yield broker


@pytest.fixture
def wire(broker: RunningBroker) -> Iterator[Wire]:
    with connect(broker) as wire:
        yield wire


def connect(broker: RunningBroker) -> Wire:
    return Wire(broker.node.kafka_addresses["SASL_PLAINTEXT"])


def message(token: str, user: str = "", extensions: str = "") -> bytes:
    return f"n,{user and 'a=' + user},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def authenticate(wire: Wire, first: bytes) -> Any:
    assert wire.send(SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER").mechanisms == ("OAUTHBEARER",)
    return wire.send(SASL_AUTHENTICATE, 2, auth_bytes=first)


def is_served(wire: Wire) -> bool:
    return len(wire.send(METADATA, 1, topics=()).brokers) == 1


def is_closed(wire: Wire) -> bool:
    try:
        wire.write(METADATA, 1, topics=())
        wire.read_frame()
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize(("user", "extensions"), [("", ""), ("alice", ""), ("", "traceId=1 2\x01more=x\x01")])
def test_whoever_has_a_token_is_served_until_it_expires(
    broker: RunningBroker, wire: Wire, issuer: Issuer, user: str, extensions: str
) -> None:
    answer = authenticate(wire, message(issuer.token(valid_s=100), user, extensions))

    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (ErrorCode.none, None, b"")
    assert 0 < answer.session_lifetime.total_seconds() <= 100
    assert is_served(wire)
    assert "User:alice" in {each.session.principal for each in broker.node._kafka.connections}


def test_an_invalid_token_gets_the_answer_of_the_standard_and_then_the_end(wire: Wire, issuer: Issuer) -> None:
    challenge = authenticate(wire, message(issuer.token(valid_s=-1)))
    assert (challenge.error_code, challenge.auth_bytes) == (ErrorCode.none, INVALID_TOKEN.encode())

    refusal = wire.send(SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")
    assert refusal.error_code == ErrorCode.sasl_authentication_failed
    assert refusal.error_message == INVALID_TOKEN
    assert is_closed(wire)


def test_after_an_invalid_token_comes_no_valid_one(wire: Wire, issuer: Issuer) -> None:
    authenticate(wire, message("x"))
    refusal = wire.send(SASL_AUTHENTICATE, 2, auth_bytes=message(issuer.token()))

    assert refusal.error_code == ErrorCode.sasl_authentication_failed
    assert is_closed(wire)


def test_nobody_acts_as_somebody_else(wire: Wire, issuer: Issuer) -> None:
    refusal = authenticate(wire, message(issuer.token(), user="bob"))

    assert refusal.error_code == ErrorCode.sasl_authentication_failed
    assert "different from the token's principal name" in refusal.error_message


@pytest.mark.parametrize(
    "form",
    ["n,,\x01auth=Bearer {}\x01", "n,,auth=Bearer {}\x01\x01", "y,,\x01auth=Bearer {}\x01\x01", "n,,\x01\x01 {}",
     "n,,\x01auth=Basic {}\x01\x01", "n,,\x01auth={}\x01\x01", "n,x,\x01auth=Bearer {}\x01\x01",
     "n,,\x01auth=Bearer {}\x01x\x01\x01", "n,,\x01host=a\x01\x01", "\0alice\0{}", "{}", ""],
)  # fmt: skip
def test_a_message_of_another_form_is_refused(wire: Wire, issuer: Issuer, form: str) -> None:
    token = issuer.token()
    refusal = authenticate(wire, form.format(token).encode())

    assert refusal.error_code == ErrorCode.sasl_authentication_failed
    assert token not in refusal.error_message
    assert is_closed(wire)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.binary(max_size=200) | st.text(alphabet="n,a=\x01auth Bearer.e", max_size=60).map(str.encode))
def test_garbage_never_gets_in(broker: RunningBroker, caplog: pytest.LogCaptureFixture, first: bytes) -> None:
    with connect(broker) as wire:
        answer = authenticate(wire, first)
        assert answer.auth_bytes == INVALID_TOKEN.encode() or answer.error_code == ErrorCode.sasl_authentication_failed
        assert is_closed(wire)
    assert "Traceback" not in caplog.text


def test_a_session_goes_on_with_another_token_of_the_same_user(wire: Wire, issuer: Issuer) -> None:
    for valid_s in (100, 200):
        answer = authenticate(wire, message(issuer.token(valid_s=valid_s)))
        assert valid_s - 100 < answer.session_lifetime.total_seconds() <= valid_s
        assert is_served(wire)

    refusal = authenticate(wire, message(issuer.token("bob")))
    assert refusal.error_message == "Cannot change principals during re-authentication"


def test_a_session_ends_with_its_token(wire: Wire, issuer: Issuer) -> None:
    expires_s = time.time() + 4
    answer = authenticate(wire, message(issuer.token(exp=expires_s)))
    assert 0 < answer.session_lifetime.total_seconds() <= 4
    assert is_served(wire)

    wait_until(lambda: is_closed(wire), "the session has ended")
    assert time.time() >= expires_s - 0.01


def test_a_session_ends_with_the_shorter_of_both_limits(issuer: Issuer, tmp_path: Path) -> None:
    with start(issuer, tmp_path, connections_max_reauth_ms=5_000) as broker:
        for valid_s, least, most in ((100, 5.0, 5.0), (4, 0.0, 4.0)):
            with connect(broker) as wire:
                answer = authenticate(wire, message(issuer.token(valid_s=valid_s)))
                assert least <= answer.session_lifetime.total_seconds() <= most


def test_a_broker_needs_to_know_where_the_keys_are() -> None:
    with pytest.raises(ConfigError, match=r"OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url"):
        start_broker(listeners=("SASL_PLAINTEXT://127.0.0.1:0",), sasl_enabled_mechanisms="PLAIN,OAUTHBEARER")


class Asked:
    """A source of tokens that counts its calls."""

    def __init__(self, issuer: Issuer, valid_s: float) -> None:
        self._issuer = issuer
        self._valid_s = valid_s
        self.times = 0

    def of_librdkafka(self, _: str) -> tuple[str, float]:
        self.times += 1
        return self._issuer.token(valid_s=self._valid_s), time.time() + self._valid_s


def librdkafka(broker: RunningBroker, asked: Asked) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": asked.of_librdkafka,
        "log_level": 0,
    }


@pytest.mark.slow
def test_librdkafka_writes_and_reads_beyond_the_life_of_a_token(broker: RunningBroker, issuer: Issuer) -> None:
    asked = Asked(issuer, valid_s=3)
    producer = Producer(librdkafka(broker, asked))

    def has_gone_on() -> bool:
        producer.produce("librdkafka", b"hello")
        assert producer.flush(PATIENCE_S) == 0
        return asked.times > 2

    wait_until(has_gone_on, "it has asked for a second token", every_s=0.1)
    options = librdkafka(broker, Asked(issuer, 3600)) | {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition("librdkafka", 0)])
        found = consumer.poll(PATIENCE_S)
        assert found is not None
        assert (found.error(), found.value()) == (None, b"hello")
    finally:
        consumer.close()


@pytest.mark.slow
def test_librdkafka_says_that_a_token_is_not_accepted(broker: RunningBroker) -> None:
    errors: list[KafkaError] = []
    stranger = librdkafka(broker, Asked(Issuer(), 3600)) | {"error_cb": errors.append}
    client = AdminClient(stranger)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.2)

    def has_said_so() -> bool:
        client.poll(0.1)
        return any(error.code() == KafkaError._AUTHENTICATION and INVALID_TOKEN in error.str() for error in errors)

    wait_until(has_said_so, "it says that it is not let in", tell=lambda: errors)


class OfKafkaPython(AbstractTokenProvider):
    def __init__(self, issuer: Issuer, **config: Any) -> None:
        super().__init__(**config)
        self._issuer = issuer

    def token(self) -> str:
        return self._issuer.token()


class OfAIOKafka(AIOKafkaTokenProvider):
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def token(self) -> str:
        return self._issuer.token()


def python_options(broker: RunningBroker, provider: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


@pytest.mark.slow
def test_kafka_python_writes_and_reads(broker: RunningBroker, issuer: Issuer) -> None:
    options = python_options(broker, OfKafkaPython(issuer))
    producer = KafkaProducer(**options)
    consumer = KafkaConsumer("python", **options, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_MS)
    try:
        producer.send("python", b"hello").get(PATIENCE_S)
        assert next(consumer).value == b"hello"
    finally:
        producer.close()
        consumer.close()


@pytest.mark.slow
def test_kafka_python_is_refused_with_another_issuers_token(broker: RunningBroker) -> None:
    with pytest.raises(KafkaPythonError):
        KafkaProducer(**python_options(broker, OfKafkaPython(Issuer())), bootstrap_timeout_ms=300)


@pytest.mark.slow
async def test_aiokafka_writes(broker: RunningBroker, issuer: Issuer) -> None:
    async with AIOKafkaProducer(**python_options(broker, OfAIOKafka(issuer))) as producer:
        assert (await producer.send_and_wait("aiokafka", b"hello")).offset == 0
