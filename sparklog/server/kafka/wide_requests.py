"""Splitting of large requests: the parts are served like many small requests, and their answers are joined.

In most APIs, the elements of a request (topics, partitions, groups or resources) are independent of each other. They
are in one array of the request and of the response, or in nested arrays, such as topics and their partitions. Duplicate
elements of a split request are answered once.

In APIs that only read (`WideArrays.once`), duplicates are answered once in every request. Otherwise a request of a few
bytes could ask a hundred times for an expensive element. Apache Kafka answers most duplicates again; clients send none.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sparklog.server.kafka.messages import Message, write
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays

TOGETHER = 500
"""Number of elements that are described at once: a few milliseconds of work."""
Item = TypeVar("Item")
Element = TypeVar("Element")


def without_duplicates(wide: WideArrays, request: Message) -> Message:
    """Return the request without duplicate elements, if `wide.once` is set.

    Elements that differ only in nested elements are merged, except with null, which stands for all.
    """
    return _deduplicated(request, wide) if wide.once else request


def is_wide(wide: WideArrays, request: Message) -> bool:
    """Return whether the request has more elements than one part may have."""
    return _weight(request, wide.request_arrays, wide.part) > wide.part


async def serve_wide(translation: Translation, call: KafkaCall, request: Message, wide: WideArrays) -> tuple[bytes]:
    """Serve the request in parts and return the response body. If a part is refused, all its elements get the error."""
    slices = call.broker.slices
    parts = await slices.in_thread(
        lambda: list(split(without_duplicates(wide, request), wide.request_arrays, wide.part))
    )
    answers = await slices.each(parts, partial(translation.respond, call))
    return (await slices.in_thread(lambda: write(join(answers, wide.response_arrays))),)


async def answer_in_parts(
    call: KafkaCall,
    items: Iterable[Item],
    elements: Callable[[Item], Iterable[Element]],
    make: Callable[[list[tuple[Item, list[Element]]]], Message],
    tells: tuple[str, ...],
    weigh: Callable[[Element], int] = lambda _: 1,
) -> Message:
    """Return the answer about these items, such as groups; an item may have very many elements, such as members.

    Other requests are served between the parts. `make` returns the answer for a part: items, each with some of its
    elements. `tells` are the response's arrays of items and elements, by which the answers are joined.
    """

    async def make_part(part: list[tuple[Item, list[Element]]]) -> Message:
        return make(part)

    slices = call.broker.slices
    answers = await slices.each(_parts(items, elements, weigh), make_part)
    return answers[0] if len(answers) == 1 else await slices.in_thread(partial(join, answers, tells))


def _parts(
    items: Iterable[Item], elements: Callable[[Item], Iterable[Element]], weigh: Callable[[Element], int]
) -> Iterator[list[tuple[Item, list[Element]]]]:
    """Yield parts of a total weight of about `TOGETHER`, at least one."""
    part: list[tuple[Item, list[Element]]] = []
    weight = 0
    for item in items:
        if weight >= TOGETHER:
            yield part
            part, weight = [], 0
        some: list[Element] = []
        part.append((item, some))
        weight += 1
        for element in elements(item):
            if weight >= TOGETHER:
                yield part
                some = []
                part, weight = [(item, some)], 1
            some.append(element)
            weight += weigh(element)
    yield part


def split(request: Message, names: tuple[str, ...], most: int) -> Iterator[Message]:
    """Yield copies of the request with at most `most` elements each in the arrays `names`."""
    name = _array_name(request.__class__, names)
    if name is None:
        yield request
        return
    part: list[Any] = []
    weight = 0
    seen = set()
    for element in getattr(request, name) or ():
        if element in seen:
            continue
        seen.add(element)
        for piece in split(element, names, most) if dataclasses.is_dataclass(element) else (element,):
            more = _weight(piece, names, most)
            if part and weight + more > most:
                yield dataclasses.replace(request, **{name: tuple(part)})
                part, weight = [], 0
            part.append(piece)
            weight += more
    if part or not seen:
        yield dataclasses.replace(request, **{name: tuple(part)} if seen else {})


def join(answers: Sequence[Message], names: tuple[str, ...]) -> Message:
    """Return the first answer, with the elements of the arrays `names` of all answers."""
    first = answers[0]
    name = _array_name(first.__class__, names)
    if name is None or getattr(first, name) is None:
        return first
    elements: list[Any] = []
    for answer in answers:
        more = getattr(answer, name) or ()
        if elements and more and _is_same_element(elements[-1], more[0], names):
            elements[-1] = join((elements[-1], more[0]), names)
            more = more[1:]
        elements.extend(more)
    return dataclasses.replace(first, **{name: tuple(elements)})


def _deduplicated(value: Any, wide: WideArrays) -> Any:
    name = _array_name(value.__class__, wide.request_arrays)
    elements = getattr(value, name) if name else None
    if not (name and elements):
        return value
    inner = _array_name(elements[0].__class__, wide.request_arrays)
    if inner is None:
        once = tuple(dict.fromkeys(elements))
    else:
        alike: dict[Any, list[Any]] = {}
        identity = _identity(elements[0].__class__, (inner, *wide.beside))
        for element in elements:
            alike.setdefault((identity(element), getattr(element, inner) is None), []).append(element)
        once = tuple(_deduplicated(_merge(each, inner), wide) for each in alike.values())
    is_same = len(once) == len(elements) and all(map(operator.is_, once, elements))
    return value if is_same else dataclasses.replace(value, **{name: once})


def _merge(elements: Sequence[Any], inner: str) -> Any:
    """Return the first element with the nested elements of all. The nested arrays are all null, or none is."""
    first, *more = elements
    if not more or getattr(first, inner) is None:
        return first
    nested = chain.from_iterable(getattr(element, inner) for element in elements)
    return dataclasses.replace(first, **{inner: tuple(nested)})


@cache
def _identity(cls: Any, without: tuple[str, ...]) -> Callable[[Any], Any]:
    return operator.attrgetter(*(field.name for field in dataclasses.fields(cls) if field.name not in without))


def _is_same_element(one: Any, other: Any, names: tuple[str, ...]) -> bool:
    """Return whether both are parts of one element, such as a topic with different partitions."""
    name = _array_name(one.__class__, names)
    if name is None or None in (getattr(one, name), getattr(other, name)):
        return False
    return bool(dataclasses.replace(one, **{name: ()}) == dataclasses.replace(other, **{name: ()}))


def _weight(value: Any, names: tuple[str, ...], enough: int) -> int:
    """Return the number of innermost elements in the arrays `names`; 1 if there are none.

    Stops counting beyond `enough`.
    """
    name = _array_name(value.__class__, names)
    if name is None:
        return 1
    elements = getattr(value, name) or ()
    if len(elements) > enough or not elements:
        return max(1, len(elements))
    weight = 0
    for element in elements:
        weight += _weight(element, names, enough)
        if weight > enough:
            break
    return weight


@cache
def _array_name(cls: Any, names: tuple[str, ...]) -> str | None:
    """Return the class's array field with one of these names; None if it has none."""
    if not dataclasses.is_dataclass(cls):
        return None
    for name, annotation in get_type_hints(cls).items():
        if name in names and tuple in {get_origin(kind) for kind in (annotation, *get_args(annotation))}:
            return name
    return None
