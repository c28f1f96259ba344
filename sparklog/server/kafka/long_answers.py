"""Answers that are longer than their requests: they are made in parts, and other requests are served between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from sparklog.runtime.slices import of_many
from sparklog.server.kafka.messages import Message, write
from sparklog.server.kafka.translation import KafkaCall
from sparklog.server.kafka.wide_requests import join

PART = 100
"""Number of elements that are translated together: a few milliseconds of work."""
Item = TypeVar("Item")


async def answer_in_parts(
    call: KafkaCall, name: str, items: Sequence[Item], answer: Callable[[Sequence[Item]], Message]
) -> Message | tuple[bytes]:
    """Return the answer with all items. `answer` makes one with some of them, in the array `name`."""
    if len(items) <= PART:
        return answer(items)

    async def answer_part(part: Sequence[Item]) -> Message:
        return answer(part)

    slices = call.broker.slices
    async with slices.few:
        await slices.give_way()
        answers = await slices.each(of_many(items, PART), answer_part)
        return (await asyncio.to_thread(lambda: write(join(answers, (name,)))),)
