"""Markdown: tables, and text that comes from docstrings and comments."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown, on one line each."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |" for cells in lines)


def code(text: str) -> str:
    """`text` as code; nothing where there is none. A bar would end a table's cell, or show how it is kept from that."""
    if "|" in text:
        return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"
    return f"`{text}`" if text else ""


def line(text: str) -> str:
    """Text for one line: quotes of code as Markdown has them, and no HTML outside of code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.replace("``", "`").split()))
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    """Text in which nothing is HTML or emphasis; an underscore within a word is none."""
    return text.replace("<", "&lt;").replace("*", r"\*")


def paragraphs(text: str) -> str:
    """A docstring or comment as Markdown: what is indented is code, the rest is text."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(_block(block) for block in blocks if block.strip())


def _block(block: str) -> str:
    lines = block.splitlines()
    if all(each.startswith("  ") for each in lines):
        width = min(len(each) - len(each.lstrip()) for each in lines)
        return "\n".join(["```text", *(each[width:] for each in lines), "```"])
    return line(block)


def page(title: str, introduction: str, sections: Iterable[str]) -> str:
    """A whole page, which says that it is generated."""
    head = f"# {title}\n\n<!-- Written by `make reference`; do not edit. -->\n\n{introduction}"
    return "\n\n".join([head, *sections]) + "\n"
