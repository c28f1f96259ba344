"""What a type checker says of code that uses sparklog, as it is installed."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api as mypy

from support import CACHE


def errors_in(folder: Path, **modules: str) -> list[tuple[str, str]]:
    """Return the module and the line of each error in these modules, given by their texts.

    What a type checker thinks of sparklog's own modules is left out, as for an installed package.
    """
    paths = []
    for name, text in modules.items():
        paths.append(folder / f"{name}.py")
        paths[-1].write_text(text)
    command = ["--strict", "--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]
    out, err, _ = mypy.run([*command, f"--cache-dir={CACHE / 'mypy'}", "--no-error-summary", *map(str, paths)])
    assert not err
    return re.findall(r"(\w+)\.py:(\d+): error", out)
