"""Packages whose public names are loaded when they are first used.

A package lists its public names in `__all__`, and their modules in a table. Type checkers and editors read the imports
below `if TYPE_CHECKING`, so they report a misspelt name; a running program gets the two functions of `lazy`:

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
    """Return a package's `__getattr__` and `__dir__`; the latter loads nothing.

    `modules` maps each name to its module; a name may also stand for the module itself.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        found = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, found)  # so that `find` runs once per name
        return found

    return find, lambda: list(public)
