"""Searches for the requests that cost a broker most per byte, of every API of both listeners.

    PYTHONPATH=tests .venv/bin/python -m support.fuzzing.search --seconds 300 --seed 1
    PYTHONPATH=tests .venv/bin/python -m support.fuzzing.search --again OffsetFetch "v5 s17 topics*300known"

For each API it grows what can grow in a small random request, then goes on from what was worst so far: by processor
time, memory and answer per byte of the request, and by the longest turn on the event loop. What it reports was measured
once more on a new broker. It fails where anything costs more than it may.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import math
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from kio.serial.errors import SerialError

from support.brokers.most_calls import Most, most_calls
from support.fuzzing.listeners import Fuzzed, Subject, fuzzed_broker, subjects
from support.fuzzing.meter import Cost, measure
from support.fuzzing.shapes import (
    KINDS,
    LARGEST,
    LONGEST_ARRAY,
    LONGEST_STRING,
    LONGEST_TAGS,
    LONGEST_TEXT,
    MOST_PARTITIONS,
    Growth,
    Shape,
    mutate,
)
from support.patience import PATIENCE_S

LARGE_BYTES = 10_000
"""A smaller request counts as one of this size: what each costs, whatever is in it, is no cost of its bytes."""
FIRST_COUNTS = {
    LONGEST_ARRAY: 500,
    LONGEST_STRING: 30_000,
    LONGEST_TEXT: 200_000,
    LONGEST_TAGS: 20_000,
    MOST_PARTITIONS: 500,
    LARGEST: 1_000_000,
}
CONFIRMED_ON = 2
DOUBTED_ON = 6
"""What seems too dear is measured on more brokers: other processes make processor time a multiple now and then."""
HUNG_S = 2 * PATIENCE_S
LONG_S = 1.0
"""What costs more is not made longer."""
MEASURED_PER_BROKER, MEASURED_PER_FULL_BROKER = 40, 400
"""A broker that has been asked so often may have many more topics or groups than at first."""
MOST_US_PER_BYTE = 30
"""Several times the worst that was found, but where topics are made."""
MAKES_TOPICS = {"CreateTopics", "Admin.CreateTopics", "CreatePartitions", "Admin.CreatePartitions"}
"""Each takes folders, files, a node in the store and a round of the controller, and stays in memory: that is no cost of
a request's bytes. The thousands of topics that such a search leaves behind would cost the next APIs time, too."""
MOST_TURN_S = 0.1
MOST_MEMORY_PER_BYTE = 900
"""A partition's number of four bytes is answered with an error of several hundred, and an empty request may ask for
everything: what the broker has in that state takes some 7 MB."""
WORST_BY: MappingProxyType[str, Callable[[Cost], float]] = MappingProxyType(
    {
        "cpu": lambda cost: cost.cpu_s / max(cost.request_bytes, LARGE_BYTES),
        "turn": lambda cost: max(cost.turn_s, cost.delay_s / 2),
        "memory": lambda cost: cost.memory_bytes / max(cost.request_bytes, LARGE_BYTES),
        "answer": lambda cost: cost.answer_bytes / max(cost.request_bytes, LARGE_BYTES),
    }
)


class Found(NamedTuple):
    """One request, and what it cost."""

    subject: str
    shape: Shape
    cost: Cost
    worst_by: str = ""

    @property
    def us_per_byte(self) -> float:
        return 1e6 * WORST_BY["cpu"](self.cost)

    def figures(self) -> dict[str, Any]:
        return {
            "api": self.subject,
            "worst by": self.worst_by,
            "us/byte": round(self.us_per_byte, 2),
            "turn ms": round(1_000 * self.cost.turn_s, 1),
            "delay ms": round(1_000 * self.cost.delay_s, 1),
            "memory/byte": round(WORST_BY["memory"](self.cost), 1),
            "answer/byte": round(WORST_BY["answer"](self.cost), 1),
            "bytes": self.cost.request_bytes,
            "shape": str(self.shape),
        }


class Brokers:
    """One at a time, a new one when the last has had enough."""

    def __init__(self, *, is_full: bool = False) -> None:
        """is_full: with the state of a broker that has been in use, which takes seconds to make."""
        self._is_full = is_full
        self._stack = ExitStack()
        self._fuzzed: Fuzzed | None = None
        self._measured = 0

    def measure(self, subject: Subject, shape: Shape) -> Cost | None:
        """None: there is no such request."""
        fuzzed = self._fuzzed or self.renew()
        try:
            request = subject.build(shape, fuzzed)
        except (ValueError, TypeError, OverflowError, struct.error, SerialError):
            return None
        hung = threading.Timer(HUNG_S, _give_up, (subject, shape))
        hung.start()
        cost = measure(fuzzed.broker, request, lambda data: subject.ask(fuzzed, data))
        hung.cancel()
        self._measured += 1
        most = MEASURED_PER_FULL_BROKER if self._is_full else MEASURED_PER_BROKER
        if self._measured >= most or (cost.cpu_s > LONG_S and not self._is_full):
            self.renew()
        return cost

    def count_calls(self, subject: Subject, shape: Shape) -> tuple[int, Most]:
        """Return the request's size in bytes, and the calls of functions that it costs a new broker's event loop."""
        fuzzed = self.renew()
        request = subject.build(shape, fuzzed)
        with most_calls(fuzzed.broker) as most:
            subject.ask(fuzzed, request)
        return len(request), most

    def renew(self) -> Fuzzed:
        self.close()
        self._measured = 0
        self._fuzzed = self._stack.enter_context(fuzzed_broker(is_full=self._is_full))
        return self._fuzzed

    def renew_if_cheap(self) -> None:
        """A full broker takes longer to make than all that is confirmed on it."""
        if not self._is_full:
            self.renew()

    def close(self) -> None:
        self._fuzzed = None
        self._stack.close()
        gc.unfreeze()  # what was measured can be freed


def _give_up(subject: Subject, shape: Shape) -> None:
    """The broker's event loop has hung, and would keep this process from its end too."""
    print(f"hung: {subject.name} '{shape}'", file=sys.stderr, flush=True)
    os._exit(1)


def excess(found: Found) -> str:
    """What of the cost is more than it may be; nothing of what every request may."""
    cost, makes_topics = found.cost, found.subject in MAKES_TOPICS
    told = []
    if found.us_per_byte > MOST_US_PER_BYTE and not makes_topics:
        told.append(f"{found.us_per_byte:.1f} us of processor time per byte: at most {MOST_US_PER_BYTE}")
    if cost.turn_s > MOST_TURN_S:
        told.append(f"a turn of {cost.turn_s:.3f} s, {cost.turn}: at most {MOST_TURN_S}")
    if WORST_BY["memory"](cost) > MOST_MEMORY_PER_BYTE and not makes_topics:
        told.append(f"{WORST_BY['memory'](cost):.0f} bytes of memory per byte: at most {MOST_MEMORY_PER_BYTE}")
    return f"{found.subject} '{found.shape}' costs {'; '.join(told)}" if told else ""


def search(
    subject: Subject,
    brokers: Brokers,
    random: Random,
    seconds: float,
    *,
    until: Callable[[Found], object] = lambda _: False,
) -> list[Found]:
    """The worst in each respect; ends before the time is over with the first that is as bad as that."""
    deadline = time.monotonic() + seconds
    worst: dict[str, Found] = {}
    for shape in _shapes(random, subject, worst):
        if time.monotonic() > deadline or any(map(until, worst.values())):
            break
        if (cost := brokers.measure(subject, shape)) is None:
            continue
        if _is_worse(cost, worst) and (again := brokers.measure(subject, shape)):
            cost = _least([cost, again])
        for name, score in WORST_BY.items():
            if name not in worst or score(cost) > score(worst[name].cost):
                worst[name] = Found(subject.name, shape, cost, name)
    return list({found.shape: found for found in worst.values()}.values())


def _is_worse(cost: Cost, worst: dict[str, Found]) -> bool:
    return any(name not in worst or score(cost) > score(worst[name].cost) for name, score in WORST_BY.items())


def _least(costs: list[Cost]) -> Cost:
    """What it costs at least: a broker has other things to do, too."""
    names = ("turn_s", "delay_s", "memory_bytes")
    figures: dict[str, Any] = {name: min(getattr(cost, name) for cost in costs) for name in names}
    return dataclasses.replace(min(costs, key=lambda cost: cost.cpu_s), **figures)


def confirm(subject: Subject, brokers: Brokers, shape: Shape, worst_by: str = "") -> Found:
    """What the request costs new brokers, or a full one again."""
    costs: list[Cost] = []
    while True:
        brokers.renew_if_cheap()
        brokers.measure(subject, Shape(shape.version, shape.seed))
        cost = brokers.measure(subject, shape)
        assert cost, f"{subject.name} has no request '{shape}'"
        costs.append(cost)
        found = Found(subject.name, shape, _least(costs), worst_by)
        if len(costs) >= (DOUBTED_ON if excess(found) else CONFIRMED_ON):
            return found


def _shapes(random: Random, subject: Subject, worst: dict[str, Found]) -> Iterator[Shape]:
    """First everything that can grow, each by itself; then, without end, what differs a little from the worst."""
    versions = range(subject.versions[0], subject.versions[1] + 1)
    first = [
        Shape(version, random.randrange(1_000_000), (Growth(path, FIRST_COUNTS[most], kind),))
        for version in {versions[0], versions[-1]}
        for path, most in subject.longest(version).items()
        for kind in KINDS
    ]
    random.shuffle(first)
    for version in versions:  # first, so that nothing is measured that happens once in a version
        yield Shape(version, random.randrange(1_000_000))
    yield from first
    while True:
        found = worst[random.choice(tuple(worst))]
        shape = found.shape
        for _ in range(random.choice((1, 1, 2, 3))):
            shape = mutate(random, shape, tuple(subject.longest(shape.version)), subject.versions)
        most = sum(found.shape.counts().values()) if found.cost.cpu_s > LONG_S else math.inf
        while not shape.fits(subject.longest(shape.version)) or sum(shape.counts().values()) > most:
            shape = shape.smaller()
        yield shape


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Aligned columns, numbers to the right."""
    texts = [[str(value) for value in row.values()] for row in rows]
    heads = list(Found("", Shape(0, 0), _NOTHING).figures())
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if 2 <= number < len(heads) - 1 else text.ljust(width)
            for number, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [heads, *texts]
    )


_NOTHING = Cost(request_bytes=0, cpu_s=0, turn_s=0, turn="", delay_s=0, memory_bytes=0, answer_bytes=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="for all APIs together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--apis", nargs="+", metavar="API", help="instead of all, such as Fetch or Log.Fetch")
    parser.add_argument("--again", nargs=2, metavar=("API", "SHAPE"), help="measure one request, and what its turn was")
    parser.add_argument("--empty", dest="is_empty", action="store_true", help="brokers that have hardly any state")
    parser.add_argument("--json", action="store_true", help="a line for each")
    options = parser.parse_args()
    known, brokers = subjects(), Brokers(is_full=not options.is_empty)
    try:
        if options.again:
            name, text = options.again
            found = confirm(known[name], brokers, Shape.parse(text))
            print(json.dumps(found.figures() | {"turn": found.cost.turn}))
            return 0
        names = options.apis or list(known)
        worst: list[Found] = []
        for name in names:
            for each in search(known[name], brokers, Random(f"{options.seed} {name}"), options.seconds / len(names)):
                worst.append(confirm(known[name], brokers, each.shape, each.worst_by))
                if options.json:
                    print(json.dumps(worst[-1].figures()), flush=True)
            if name in MAKES_TOPICS:
                brokers.renew()
        if not options.json:
            print(table(each.figures() for each in sorted(worst, key=lambda each: -each.us_per_byte)))
        too_much = list(filter(None, map(excess, worst)))
        for text in too_much:
            print(text, file=sys.stderr)
        return bool(too_much)
    finally:
        brokers.close()


if __name__ == "__main__":
    sys.exit(main())
