"""Environments with sparklog as users install it: its wheel, and what the wheel's metadata asks for, and nothing else.

Other packages are links to those of this project's own .venv: the ones that the requirements name, and what these
require in turn. So an environment is there within two seconds and without a network, and an import that no requirement
covers fails as it would for a user. sparklog itself is installed by pip, from the wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support import ROOT
from support.patience import PATIENCE_S

OURS = "sparklog"
OF_THE_DEVELOPER = ("PYSPARK", "PYTEST", "PYTHON", "SPARK_CONF", "SPARK_HOME", "SPARKLOG", "XDG")
"""Variables that begin so might bring the checkout in again."""
KEPT = ("PYTEST_CURRENT_TEST", "SPARKLOG_TEST_RUN")
"""By these support.runs.leftovers knows a process."""


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=PATIENCE_S)
    [wheel] = folder.glob("*.whl")
    return wheel


def make_environment(home: Path, wheel: Path | None, *requirements: str) -> Path:
    """An environment in `home` with `requirements`, sparklog by its wheel, if there is one -> its bin folder."""
    venv.create(home, symlinks=True, with_pip=False)
    [site] = home.glob("lib/python*/site-packages")
    for package in required(requirements):
        for entry, source in installed(package):
            target = (site if entry.parts[0] != ".." else home / "bin") / entry.name
            if not target.exists():
                target.symlink_to(source)
    python = home / "bin" / "python"
    if wheel is None:
        return python.parent
    options = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)],
        check=True,
        timeout=PATIENCE_S,
    )
    return python.parent


def pack(home: Path, archive: Path, *without: str) -> None:
    """Make a .tar.gz of an environment for spark.archives, without these packages.

    Its links stay links, so it is small. Spark unpacks it with tar, which keeps them; it unpacks a plain .tar itself,
    and then no file is executable.
    """
    left_out = [f"--exclude=lib/python*/site-packages/{name}" for name in without]
    command = ["tar", "--create", "--gzip", "--file", str(archive), *left_out, "bin", "lib", "pyvenv.cfg"]
    subprocess.run(command, check=True, cwd=home, timeout=PATIENCE_S)


def variables(bin_folder: Path, **more: str) -> dict[str, str]:
    """The process's environment where that of `bin_folder` is activated."""
    kept = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(OF_THE_DEVELOPER)}
    return {**kept, "PATH": f"{bin_folder}:{os.environ['PATH']}", "VIRTUAL_ENV": str(bin_folder.parent), **more}


def required(requirements: Iterable[str]) -> list[Distribution]:
    """The distributions that pip would install for `requirements`, but for sparklog."""
    found: dict[str, Distribution] = {}
    seen = set()
    to_do = [Requirement(text) for text in requirements]
    while to_do:
        requirement = to_do.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        found[name] = distribution(name)
        for each in map(Requirement, found[name].requires or ()):
            if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
                to_do.append(each)
    return [package for name, package in found.items() if name != OURS]


def installed(package: Distribution) -> Iterator[tuple[Path, Path]]:
    """What a distribution has put into site-packages and bin: its name from site-packages, and where it is."""
    site = Path(str(package.locate_file(""))).resolve()
    files = [Path(file) for file in package.files or ()]
    for name in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        yield Path(name), site / name
    for file in files:
        if file.parts[0] == ".." and file.parent.name == "bin":
            yield file, (site / file).resolve()
