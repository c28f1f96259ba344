"""Clients in Go and Node, made from the .proto files as docs/guides/other-languages.md says, against a broker.

The page's own commands set up a project for each language, and its own program runs there. `make clients` runs these
tests: they need Go, Node and npm, and packages of both.
"""

from __future__ import annotations

import hashlib
import random
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.client import Admin, Consumer, Producer
from support import ROOT, TESTS
from support.clients.projects import Project, require
from support.docs.markdown import blocks
from support.patience import PATIENCE_MS, PATIENCE_S
from support.processes.broker import BrokerProcess

PAGE = ROOT / "docs" / "guides" / "other-languages.md"
ADDRESS = "127.0.0.1:9094"
"""The broker's on the page."""
PROGRAMS = TESTS / "clients" / "programs"
LARGE = 1_000_000
COUNT, SIZE = 2_500, 7_000
"""Records beside the large one, in batches that are much smaller than what they hold; and the size of each."""

pytestmark = [pytest.mark.generated_clients, pytest.mark.slow, pytest.mark.timeout(1_500)]


@dataclass(frozen=True, slots=True)
class Language:
    """Its name in blocks of code, the file that the page's program goes into, and what runs it and must be there."""

    name: str
    file: str
    run: str
    needed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """The three blocks that the page has for a language."""

    set_up: str
    program: str
    run: str


LANGUAGES = (
    Language("go", "main.go", "go run", ("go",)),
    Language("js", "orders.js", "node", ("node", "npm")),
)


@pytest.fixture(scope="module", params=LANGUAGES, ids=lambda language: language.name)
def language(request: pytest.FixtureRequest) -> Language:
    return request.param


@pytest.fixture(scope="module")
def example(language: Language) -> Example:
    here = str(Path(__file__).relative_to(ROOT))
    ours = [block for block in blocks(PAGE) if (block.mark, block.reason) == ("tested by", here)]
    assert [block.language for block in ours] == [name for each in LANGUAGES for name in ("sh", each.name, "sh")]
    first = 3 * LANGUAGES.index(language)
    return Example(*(block.text for block in ours[first : first + 3]))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, language: Language, example: Example) -> Project:
    """A project as the page's commands make it, with nothing in it that was written by hand."""
    require(*language.needed)
    made = Project(tmp_path_factory.mktemp(language.name))
    made.run(example.set_up)
    return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One of the test's own: the page names the topic, and offsets begin at 0."""
    with BrokerProcess(tmp_path) as process:
        yield process


def test_the_program_of_the_page_reads_what_it_has_written(
    project: Project, language: Language, example: Example, broker: BrokerProcess, admin: Admin
) -> None:
    assert ADDRESS in example.program
    (project.folder / language.file).write_text(example.program.replace(ADDRESS, broker.grpc))
    admin.create_topic("orders", partitions=3)

    printed = project.run(example.run)

    with Consumer(bootstrap_servers=broker.grpc, auto_offset_reset="earliest") as consumer:
        consumer.assign_topic("orders")
        [record] = consumer.poll(PATIENCE_MS)
    assert (record.key, record.value, record.offset) == (b"alice", b'{"amount": 12}', 0)
    assert printed.splitlines() == [f"orders-{record.partition} at offset 0", '0 alice {"amount": 12}']


@pytest.mark.parametrize("call", ["Fetch", "Subscribe"])
def test_a_client_with_default_limits_reads_more_than_one_message_may_hold(
    project: Project, language: Language, broker: BrokerProcess, admin: Admin, call: str
) -> None:
    """By default clients take messages of 4 MiB."""
    values = [random.Random(0).randbytes(LARGE), *(b"%07d" % number * (SIZE // 7) for number in range(COUNT))]
    assert sum(map(len, values)) > 16 << 20
    admin.create_topic("large", partitions=1)
    with Producer(bootstrap_servers=broker.grpc, compression_type="zstd") as producer:
        producer.send("large", values[0]).result(PATIENCE_S)
        producer.send_table("large", pa.table({"value": values[1:]})).result(PATIENCE_S)

    [program] = PROGRAMS.glob(f"*.{language.name}")
    shutil.copy(program, project.folder)
    printed = project.run(f"{language.run} {shlex.join([program.name, broker.grpc, 'large', call, str(len(values))])}")

    digest = hashlib.sha256(b"".join(values)).hexdigest()
    assert printed == f"{len(values)} records, {sum(map(len, values))} bytes, sha256 {digest}\n"
