"""Apicurio Registry, a schema registry that others have written, with Confluent's REST API. `make test` fetches it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import CACHE
from support.patience import PATIENCE_S, wait_until
from support.processes.java import JAVA
from support.processes.ports import reserve_port
from support.processes.probes import probe

APP = CACHE / "apicurio"
API = "/apis/ccompat/v7"
OK = 200


@contextmanager
def apicurio_registry(folder: Path) -> Iterator[str]:
    """Run a registry that keeps schemas in memory; yield its URL for clients of Confluent's API.

    folder: for what the registry prints
    """
    [jar] = APP.glob("*-runner.jar") or [None]
    assert jar, f"no registry in {APP}: run `make test`, which fetches it"
    with (folder / "apicurio.txt").open("wb") as output:
        port = reserve_port(output)
        address = f"127.0.0.1:{port}"
        settings = ("-Xmx256m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}")
        server = subprocess.Popen([*JAVA, *settings, "-jar", str(jar)], stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: probe(address, f"{API}/subjects")[0] == OK or server.poll() is not None, "it answers")
            assert server.poll() is None, (folder / "apicurio.txt").read_text()
            yield f"http://{address}{API}"
        finally:
            server.kill()
            server.wait(PATIENCE_S)
