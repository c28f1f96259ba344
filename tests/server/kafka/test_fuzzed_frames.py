"""Whatever comes in, the broker goes on: requests of every API and version with random values, cut off, with bytes
changed, and noise. Each ends in an answer or in a closed connection; no other client notices, memory stays what it was,
and nothing in the broker fails in a way that nobody thought of.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest
from kio.serial import entity_writer

from sparklog.base.addresses import Address
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.messages import make
from support.kafka.connection import Wire, message_frame, request_frame
from support.kafka.grown_requests import arrays, grow
from support.kafka.random_requests import make_request
from support.processes.broker import BrokerProcess
from support.runs.seeds import SEED

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
APIS = {translation.api.name: translation.api for translation in TRANSLATIONS}
FRAMES = 5 if SEED is None else 50  # of each kind, for each version
MORE_MEMORY = 200 << 20
AFTER = 77
"""The correlation id of the request behind the one that is tried out."""
pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("fuzzed"), "group.min.session.timeout.ms=1", "num.partitions=2"
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def address(process: BrokerProcess) -> Address:
    return Address.parse(process.kafka, "kafka")


@pytest.fixture
def bystander(process: BrokerProcess, address: Address) -> Iterator[None]:
    """Another client that gets answers before and after, from a broker with bounded memory."""
    with Wire(address) as wire:
        before = process.resident_bytes
        ask(wire)
        yield
        ask(wire)
        assert process.resident_bytes - before < MORE_MEMORY


def ask(wire: Wire) -> None:
    versions = wire.send(API_VERSIONS, 0).api_keys
    assert {each.api_key for each in versions} >= {api.key for api in APIS.values()}


def real_frame(random: Random, key: int, version: int) -> bytes:
    """A valid request with random values."""
    request = make_request(random, key, version)
    header = make(
        request.__header_schema__,
        request_api_key=key,
        request_api_version=version,
        correlation_id=1,
        client_id=random.choice((None, "", "fuzzer")),
    )
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(type(request))(buffer, request)
    return buffer.getvalue()


def is_answered(address: Address, frame: bytes) -> bool:
    """Send `frame` and a plain request after it; return whether both are answered. If not, the connection is closed."""
    with Wire(address) as wire:
        wire.write_frame(frame)
        with suppress(ConnectionError):
            wire.write_frame(request_frame(API_VERSIONS, 0, AFTER))
            while True:
                (correlation_id,) = struct.unpack_from(">i", wire.read_frame())
                if correlation_id == AFTER:
                    return True
    return False


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("name", APIS)
def test_random_values_are_answered(address: Address, name: str) -> None:
    api = APIS[name]
    first, last = api.versions
    random = Random(f"{name} {SEED}")
    for version in range(first, last + 1):
        for number in range(FRAMES):
            frame = real_frame(random, api.key, version)
            assert is_answered(address, frame) or name == "Produce", f"{name} {version}, frame {number}: {frame.hex()}"


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("name", APIS)
def test_frames_that_are_cut_off_or_changed_hurt_nobody(address: Address, name: str) -> None:
    api = APIS[name]
    first, last = api.versions
    random = Random(f"changed {name} {SEED}")
    for version in range(first, last + 1):
        for _ in range(FRAMES):
            frame = bytearray(real_frame(random, api.key, version))
            is_answered(address, frame[: random.randrange(len(frame))])
            for _ in range(random.randrange(1, 4)):
                frame[random.randrange(8, len(frame))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
            is_answered(address, frame)
            is_answered(address, frame[:8] + random.randbytes(random.randrange(100)))


@pytest.mark.soak_only
@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("name", APIS)
def test_long_arrays_hurt_nobody(address: Address, name: str) -> None:
    """A megabyte of the smallest elements."""
    api = APIS[name]
    random = Random(f"long {name} {SEED}")
    for version in range(api.versions[0], api.versions[1] + 1):
        for path in arrays(api.key, version):
            request = grow(random, api.key, version, path, random.choice((50_000, 1_000_000)), numbered=False)
            is_answered(address, message_frame(request))


@pytest.mark.usefixtures("bystander")
def test_noise_and_apis_that_are_not_there_close_the_connection(address: Address) -> None:
    random = Random(f"noise {SEED}")
    served = {api.key for api in APIS.values()}
    for _ in range(300):
        noise = random.randbytes(random.randrange(200))
        if struct.unpack(">h", noise[:2].ljust(2, b"\0"))[0] not in served:
            assert not is_answered(address, noise)
    for key in set(range(-3, 120)) - served:
        assert not is_answered(address, struct.pack(">hhih", key, 0, 1, -1))


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("size", [-(2**31), -1, 0, 3, 101 << 20, 2**31 - 1])
def test_a_size_that_no_request_has_closes_the_connection(address: Address, size: int) -> None:
    with Wire(address) as wire:
        wire.socket.sendall(struct.pack(">i", size) + bytes(100))
        with pytest.raises(ConnectionError):
            wire.read_frame()


@pytest.mark.usefixtures("bystander")
def test_sizes_that_are_never_filled_cost_nothing(address: Address) -> None:
    wires = [Wire(address) for _ in range(100)]
    for wire in wires:
        wire.socket.sendall(struct.pack(">i", 90 << 20) + bytes(1000))
    with Wire(address) as other:
        ask(other)
    for wire in wires:
        wire.close()
