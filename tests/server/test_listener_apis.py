"""Listeners use handlers only, and no other part of the broker."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparklog.server

SERVER = Path(sparklog.server.__file__).parent
REFUSED = {
    "services": (),
    "metadata": ("kafka/topic_ids.py",),
    # It asks for no rights: produce and the service Replication have checked them before, and logins need none.
    "serve": ("grpc/log.py", "grpc/replication.py", "kafka/sasl.py"),
}
"""Attributes of a broker that no listener uses, each with the files that may."""


def uses(attribute: str) -> Iterator[str]:
    for path in sorted(SERVER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == attribute:
                owner = ast.unparse(node.value)
                if "broker" not in owner or owner.endswith("broker.clients"):
                    continue  # ClientRequests serves by rights
                yield f"{path.relative_to(SERVER)}"


@pytest.mark.slow
def test_listeners_do_not_look_into_the_broker() -> None:
    assert {attribute: set(uses(attribute)) for attribute in REFUSED} == {
        attribute: set(allowed) for attribute, allowed in REFUSED.items()
    }
