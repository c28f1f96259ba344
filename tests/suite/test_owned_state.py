"""The check that only the module of a class assigns to the attributes of its objects."""

from __future__ import annotations

import pytest

from support.runs.owned_state import foreign_assignments, main

OWNER = """
class Queue:
    size: int
    def __init__(self):
        self.first = None
"""


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(self): self.size = 1", []),
        ("def f(queue): queue.size = 1", ["queue.size"]),
        ("def f(queue): queue.size += 1", ["queue.size"]),
        ("def f(queue): del queue.size", ["queue.size"]),
        ("def f(a, b): a.x, (b.y, *b.z) = 1, (2, 3)", ["a.x", "b.y", "b.z"]),
        ("def f(a):\n    for a.x in b: pass", ["a.x"]),
        ("def f(self): self.queue.size = 1", ["self.queue.size"]),
        ("def f(queue): queue.items[0] = 1", []),
        (OWNER + "def f(queue): queue.size = queue.first = 1", []),
        (OWNER + "def f(queue: Queue | None): queue.first = 1", []),
        (OWNER + "def f(queue): queue.last = 1", ["queue.last"]),
        (OWNER + "def f(other: Room): other.size = 1", ["other.size"]),
        (OWNER + "def f(other: rooms.Queue[int]): other.size = 1", []),
    ],
)
def test_an_assignment_to_state_of_another_modules_class_is_found(code: str, found: list[str]) -> None:
    assert sorted(target for _, target in foreign_assignments(code)) == found


@pytest.mark.slow
def test_the_lists_of_exceptions_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capsys.readouterr().err
