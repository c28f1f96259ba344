"""Links of the documentation, generated pages, and the navigation of the site."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.spark.columns import TYPES
from sparklog.spark.source.option_doc import COLUMNS, OPTION_DOCS, WRITTEN_COLUMNS
from sparklog.spark.source.option_table import OPTIONS
from sparklog.spark.source.write import WRITE_COLUMNS
from support.docs.markdown import ROOT, anchors, links, pages

CODE = ("sparklog", "jobs", "proto", "tests", "bench", "examples", "conf")
MODULE = re.compile(r"(?<![\w/.<])((?:[\w-]+/)+[a-z_]\w*(?:\.(?:py|txt|toml|proto))?)(?![\w/.*-])")
"""As in `log/replacement/swap.py`, and in the diagrams: log/append."""
LAYERS = sorted(path.parent.name for path in (ROOT / "sparklog").glob("*/__init__.py"))
MENTION = re.compile(r"\bdocs/[\w/.-]+\.md\b")


CONCEPTS = [page for page in pages() if page.parent.name in ("concepts", "decisions") or page.name == "CONTRIBUTING.md"]


def broken(page: Path, target: str) -> str:
    """The error of a link; empty for a valid one."""
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    if not found.exists():
        return "there is no such file"
    if page.is_relative_to(ROOT / "docs") and not found.is_relative_to(ROOT / "docs"):
        return "the site has only what is in docs/"
    if anchor and anchor not in anchors(found):
        return f"there is no such heading in {found.name}"
    return ""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_documentation_lead_somewhere(page: Path) -> None:
    wrong = {f"{page.name}:{line}: {target}": broken(page, target) for line, target in links(page)}
    assert {link: why for link, why in wrong.items() if why} == {}


@pytest.mark.slow
def test_pages_that_the_code_mentions_are_there() -> None:
    missing = []
    for folder in CODE:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".proto", ".toml", ".java") and path.is_file():
                found = MENTION.findall(path.read_text())
                missing += [f"{path.relative_to(ROOT)}: {name}" for name in found if not (ROOT / name).exists()]
    assert missing == []


def is_there(module: str) -> bool:
    """Whether a path that begins with a layer or a folder of the project exists; True for other names."""
    first = module.partition("/")[0]
    if first not in {*LAYERS, *CODE}:
        return True
    places = [ROOT / "sparklog" / module, ROOT / module, *(ROOT / "sparklog" / layer / module for layer in LAYERS)]
    return any(place.exists() or place.with_suffix(".py").exists() for place in places)


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_pages_name_are_there(page: Path) -> None:
    assert [name for name in MODULE.findall(page.read_text()) if not is_there(name)] == []


@pytest.mark.slow
def test_generated_files_are_as_they_would_be_generated() -> None:
    """In another process, because click's commands keep state of earlier runs in this one."""
    done = subprocess.run(
        [sys.executable, "-m", "sparklog.docs", "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_option_and_column_of_the_source_is_explained() -> None:
    assert OPTION_DOCS.keys() == {option.name for option in OPTIONS.values()}
    assert COLUMNS.keys() == TYPES.keys()
    assert WRITTEN_COLUMNS.keys() == WRITE_COLUMNS.keys()


def test_the_site_s_navigation_has_every_page_once() -> None:
    text = (ROOT / "conf" / "mkdocs.yml").read_text()
    navigation = re.findall(r"[\w/-]+\.md", text.partition("\nnav:\n")[2])
    there = [str(page.relative_to(ROOT / "docs")) for page in pages() if page.is_relative_to(ROOT / "docs")]

    assert sorted(navigation) == sorted(there)
