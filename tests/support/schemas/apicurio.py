"""Apicurio Registry, a schema registry that others have written, with Confluent's REST API. `make test` fetches it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from support import CACHE
from support.patience import PATIENCE_S, wait_until
from support.processes.java import JAVA
from support.processes.ports import reserve_port

APP = CACHE / "apicurio"


@contextmanager
def apicurio_registry(folder: Path) -> Iterator[str]:
    """Run a registry that keeps schemas in memory; yield its URL for clients of Confluent's API.

    folder: for what the registry prints
    """
    [jar] = APP.glob("*-runner.jar") or [None]
    assert jar, f"no registry in {APP}: run `make test`, which fetches it"
    with (folder / "apicurio.txt").open("wb") as output:
        port = reserve_port(output)
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        settings = ("-Xmx256m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}")
        server = subprocess.Popen([*JAVA, *settings, "-jar", str(jar)], stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: server.poll() is not None or is_up(url), "the registry answers")
            assert server.poll() is None, (folder / "apicurio.txt").read_text()
            yield url
        finally:
            server.kill()
            server.wait(PATIENCE_S)


def is_up(url: str) -> bool:
    try:
        with urlopen(f"{url}/subjects", timeout=PATIENCE_S):
            return True
    except URLError:
        return False  # it does not listen yet
