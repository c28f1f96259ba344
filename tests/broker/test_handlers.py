"""The services that handlers of APIs use, and their binding."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest

from sparklog.broker.api import Api, Handlers
from sparklog.broker.apis import APIS, PEER_APIS
from sparklog.broker.services import Services

ALL = list(dict.fromkeys((*APIS, *PEER_APIS.values())))


@pytest.mark.parametrize("api", ALL, ids=lambda api: api.name)
def test_a_handler_uses_parts_of_a_broker_by_their_names_and_types(api: Api[Any, Any]) -> None:
    given, fields = get_type_hints(api.handle), get_type_hints(Services)
    assert {name: given[name] for name in api.uses} == {name: fields.get(name) for name in api.uses}
    others = inspect.signature(api.handle).parameters.keys() - set(api.uses)
    assert others == (set() if isinstance(api.handle, type) else {"request"})


@dataclass(frozen=True, kw_only=True)
class Add:
    amount: int

    async def __call__(self, request: int) -> int:
        return request + self.amount


async def multiply(request: int, *, amount: int) -> int:
    return request * amount


async def echo(request: int) -> int:
    return request


async def test_handlers_are_bound_once_when_first_asked_for_or_before() -> None:
    apis = [Api(name="", handle=each, rights=()) for each in (Add, multiply, echo)]
    handlers = Handlers(SimpleNamespace(amount=3, unused=None))
    assert list(handlers) == []
    assert [await handlers[api](4) for api in apis] == [7, 12, 4]
    assert [handlers[api] is handlers[api] for api in apis] == [True] * 3
