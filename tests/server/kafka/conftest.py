"""One broker with a Kafka listener for the tests of this folder; each test has topics and groups of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.secured_broker import JAAS, PROTOCOLS, SCRAM_PASSWORD, SCRAM_USER, Secured


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[RunningBroker]:
    """A broker whose new groups begin with the first member."""
    with start_broker(
        kafka=True,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=3,
        transaction_state_log_num_partitions=3,
    ) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_address(kafka_broker: RunningBroker) -> tuple[str, int]:
    return kafka_broker.node.kafka_addresses["PLAINTEXT"]


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_address: tuple[str, int]) -> str:
    """The listener's address in the form of clients."""
    return f"{kafka_address[0]}:{kafka_address[1]}"


@pytest.fixture
def wire(kafka_address: tuple[str, int]) -> Iterator[Wire]:
    with Wire(kafka_address) as connection:
        yield connection


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    """An unused name of a topic or group."""
    numbers = itertools.count()
    return lambda: f"name-{next(numbers)}"


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEM files: server.pem and client.pem, signed by ca.pem, and an untrusted stranger.pem."""
    folder = tmp_path_factory.mktemp("keys")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, issuer in (("server", authority), ("client", authority), ("stranger", trustme.CA())):
        certificate = issuer.issue_cert("localhost", "127.0.0.1", common_name=name, organization_name="Example")
        certificate.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    return folder


@pytest.fixture(scope="session")
def secured(keys: Path) -> Iterator[Secured]:
    """One broker with a listener of every security protocol, a user of PLAIN and one of SCRAM."""
    with start_broker(
        listeners=tuple(f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS),
        ssl_keystore_location=str(keys / "server.pem"),
        plain_sasl_jaas_config=JAAS,
        connection_failed_authentication_delay_ms=1,
    ) as broker:
        found = Secured(broker, keys)
        found.add_scram_user(SCRAM_USER, SCRAM_PASSWORD)
        yield found
