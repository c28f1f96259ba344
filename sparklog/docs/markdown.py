"""Markdown for tables, and for text from docstrings and comments."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; each cell is one line of Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |" for cells in lines)


def code(text: str) -> str:
    """Return `text` as code, or nothing if it is empty.

    A bar is an HTML entity: in Markdown code it would end a table's cell, and its escape would be visible.
    """
    if "|" in text:
        return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"
    return f"`{text}`" if text else ""


def line(text: str) -> str:
    """Return text as one line of Markdown, with code in single backquotes, and no HTML outside of code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.replace("``", "`").split()))
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    """Escape HTML and emphasis; underscores need no escape, as they are within words."""
    return text.replace("<", "&lt;").replace("*", r"\*")


def paragraphs(text: str) -> str:
    """Return a docstring or comment as Markdown: indented blocks become code, the rest is text."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(_block(block) for block in blocks if block.strip())


def _block(block: str) -> str:
    lines = block.splitlines()
    if all(each.startswith("  ") for each in lines):
        width = min(len(each) - len(each.lstrip()) for each in lines)
        return "\n".join(["```text", *(each[width:] for each in lines), "```"])
    return line(block)


def page(title: str, introduction: str, sections: Iterable[str]) -> str:
    """Return a whole page, with a note that it is generated."""
    head = f"# {title}\n\n<!-- Written by `make reference`; do not edit. -->\n\n{introduction}"
    return "\n\n".join([head, *sections]) + "\n"
