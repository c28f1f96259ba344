"""Packages whose public names are loaded when they are first used.

A package says in `__all__` what is public, and in a table where it is. Type checkers and editors read imports below
`if TYPE_CHECKING`, so that a misspelt name is an error to them; a running program gets the two functions of `lazy`:

    if TYPE_CHECKING:
        from package.module import Name
    else:
        __getattr__, __dir__ = lazy(__name__, {"Name": "package.module"}, __all__)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy(
    package: str, modules: Mapping[str, str], public: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__`, and its `__dir__`, which loads nothing.

    `modules` has the module of each name, which may also be that module itself.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        found = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, found)  # so that it is asked for once
        return found

    return find, lambda: list(public)
