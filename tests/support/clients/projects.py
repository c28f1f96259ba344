"""Projects in other languages: folders in which the commands of a page run, as a reader would run them.

A checkout is in the folder `sparklog`, where the page expects it. `protoc` is that of grpcio-tools, and its plugins for
Go are installed into the project. Packages that a command installs have the versions given here, not the newest, and
stay in the caches of Go and npm.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from support import ROOT
from support.patience import PATIENCE_S
from support.processes import output

VERSIONS = {
    "google.golang.org/grpc": "v1.80.0",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc": "v1.6.1",
    "google.golang.org/protobuf": "v1.36.12",
    "google.golang.org/protobuf/cmd/protoc-gen-go": "v1.36.12",
    "@grpc/grpc-js": "1.14.7",
    "@grpc/proto-loader": "0.8.1",
}
INSTALL = re.compile(r"^(go get|go install|npm install) (.+)$", re.MULTILINE)
PATIENCE_WITH_PACKAGES_S = 5 * PATIENCE_S
"""Packages are fetched and compiled where the caches of Go and npm have none."""


class Project:
    """One folder, and what runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "bin"
        self._bin.mkdir()
        (folder / "sparklog").symlink_to(ROOT)
        protoc = self._bin / "protoc"
        protoc.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m grpc_tools.protoc "$@"\n')
        protoc.chmod(0o755)

    def run(self, commands: str) -> str:
        """What the commands of a shell print; fails where one of them fails."""
        environment = {**os.environ, "GOBIN": str(self._bin), "PATH": f"{self._bin}:{os.environ['PATH']}"}
        done = output.run(
            ["bash", "-c", f"set -euo pipefail\n{pinned(commands)}"],
            folder=self.folder, environment=environment, patience_s=PATIENCE_WITH_PACKAGES_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout


def require(*programs: str) -> None:
    """Fail where one of the programs that `make clients` runs is not there."""
    missing = [name for name in programs if not shutil.which(name)]
    assert not missing, (
        f"there is no {' and no '.join(missing)} on the PATH: install Go 1.24 or later, and Node 18 or later with npm, "
        "which `make clients` needs"
    )


def pinned(commands: str) -> str:
    """The commands with the versions of what they install."""

    def pin(found: re.Match[str]) -> str:
        names = [word.removesuffix("@latest") for word in found[2].split()]
        return " ".join([found[1], *(f"{name}@{VERSIONS[name]}" for name in names)])

    return INSTALL.sub(pin, commands)
