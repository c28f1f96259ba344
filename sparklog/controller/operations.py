"""The operations of a controller, in the order in which they are told what has happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparklog.controller.operation import Operation
from sparklog.controller.parts import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Of one controller, from its election to its end."""

    def __iter__(self) -> Iterator[Operation]:
        return iter(())


def begin_operations(parts: Parts) -> Operations:
    return Operations()
