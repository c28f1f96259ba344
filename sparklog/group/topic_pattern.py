"""The topics that match the regular expressions of a group's members (base/pattern.py).

Expressions are matched in slices (`match`), before a group decides what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct, field

from sparklog.base.errors import InvalidRegularExpression
from sparklog.base.pattern import compile_pattern
from sparklog.group.group import TopicsImage
from sparklog.runtime.slices import Slices


class TopicMatches(Struct, frozen=True, kw_only=True):
    """The topics that match regular expressions, as of one version of the topics."""

    version: int
    topics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Topic names by expression, sorted."""


UNMATCHED = TopicMatches(version=-1)
"""No expression has been matched."""


async def match(
    texts: Collection[str], topics: TopicsImage, slices: Slices, may_describe: Callable[[str], bool] | None = None
) -> TopicMatches:
    """Return the topics that match each expression, in slices; invalid expressions are left out.

    may_describe: returns whether the client may see a topic; None: it may see all
    """
    version, found = topics.version, dict[str, list[str]]()
    names = [topic.name for topic in topics] if texts else []

    async def match_one(pair: tuple[str, str]) -> None:
        text, name = pair
        if compile_pattern(text).matches(name) and (may_describe is None or may_describe(name)):
            found[text].append(name)

    for text in sorted(texts):
        try:
            compile_pattern(text)
        except InvalidRegularExpression:
            continue
        found[text] = []
        await slices.each(((text, name) for name in names), match_one)
    return TopicMatches(version=version, topics=found)
