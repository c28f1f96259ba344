"""Pages of Markdown, as far as tests look into them: headings and links, blocks of code and what is said of them.

A block of code has a line directly above it where it is not to be run with its page:

    <!-- not run: needs ZooKeeper -->            with a reason
    <!-- tested by: tests/spark/source/test_path.py -->    a test runs what it shows
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
TOP_LEVEL = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
_BLOCK = re.compile(r"^(?:<!-- (not run|tested by): (.*?) -->\n)?```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code."""

    page: Path
    line: int
    language: str
    text: str
    mark: str
    """``not run``, ``tested by``, or nothing: it is run with its page."""
    reason: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page that people read."""
    return [*(ROOT / name for name in TOP_LEVEL), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of code of a page, in order."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        mark, reason, language, code = found.groups()
        yield Block(page, text.count("\n", 0, found.start(4)), language, code, mark or "", reason or "")


def links(page: Path) -> Iterator[tuple[int, str]]:
    """The links of a page within the documentation, with their lines."""
    text = without_code(page.read_text())
    for found in _LINK.finditer(text):
        if not re.match(r"[a-z]+:", found[1]):
            yield text.count("\n", 0, found.start()) + 1, found[1]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as code hosts and the site make them."""
    seen: dict[str, int] = {}
    for heading in _HEADING.findall(without_blocks(page.read_text())):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = seen[slug] = seen.get(slug, -1) + 1
        if number:
            seen[f"{slug}-{number}"] = 0
    return frozenset(seen)


def without_blocks(text: str) -> str:
    """The page with its blocks of code blanked out, line for line."""
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)


def without_code(text: str) -> str:
    """The same, and without code in lines."""
    return re.sub(r"`[^`\n]*`", lambda found: " " * len(found[0]), without_blocks(text))
