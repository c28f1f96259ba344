"""Blocks of code in the documentation run, or have a reason why they do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparklog.testing import start_broker
from support.docs.markdown import ROOT, blocks, pages
from support.docs.running import RUN, PageRun, needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3}
ALL = [block for page in pages() for block in blocks(page) if block.language in RUN]
RUNNABLE = {
    page: [block for block in found if not block.mark]
    for page, found in ((page, list(found)) for page, found in itertools.groupby(ALL, key=lambda block: block.page))
    if any(not block.mark for block in found)
}
WITH_SPARK = [page for page, found in RUNNABLE.items() if any(map(needs_spark, found))]
WITHOUT_SPARK = [page for page in RUNNABLE if page not in WITH_SPARK]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def page_run(tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageRun]:
    """Runs blocks of the page on a broker of its own, with a topic unless the page creates it."""
    monkeypatch.chdir(tmp_path)
    with start_broker(tmp_path / "sparklog-data", kafka=True, **SETTINGS) as broker, ExitStack() as stack:
        run = PageRun(broker, tmp_path, stack)
        if not any("topics create orders" in block.text for block in RUNNABLE[page]):
            run.make_orders()
        yield run


def run_all(run: PageRun, page: Path) -> None:
    for block in RUNNABLE[page]:
        run.run(block)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITHOUT_SPARK, ids=name_of)
def test_blocks_of_a_page_run(page_run: PageRun, page: Path) -> None:
    run_all(page_run, page)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_SPARK, ids=name_of)
def test_blocks_of_a_page_run_in_spark(spark: SparkSession, page_run: PageRun, page: Path) -> None:
    page_run.use(spark)
    run_all(page_run, page)


@pytest.mark.parametrize("page", sorted({block.page for block in ALL}), ids=name_of)
def test_blocks_that_do_not_run_with_their_page_say_why(page: Path) -> None:
    missing = [
        block.name
        for block in ALL
        if block.page == page
        and (not block.reason if block.mark == "not run" else block.mark and not (ROOT / block.reason).is_file())
    ]
    assert missing == [], "no such test, or no reason"


def test_every_block_says_its_language() -> None:
    assert [block.name for page in pages() for block in blocks(page) if block.language in ("bash", "shell", "py")] == []
