"""From the start of a broker's process to its first answer:  python -m bench.start [--help]

The client asks for ApiVersions over Kafka's protocol until it is answered. Seconds, and CPU seconds of the broker until
then, the least of --runs. A cluster has started when it says that its brokers are ready and know one another. The
modules' compiled files are there, as after a first start. `kio` imports hypothesis, which takes a quarter of a second,
where it is installed, as it is for tests: it is hidden here, as users do not have it.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from bench.frames import SIZE, framed
from bench.harness import BrokerProcess

API_VERSIONS = (18, 3)
EVERY_S = 0.005
TIMEOUT_S = 30
BROKERS = 3


class Started(NamedTuple):
    seconds: float
    cpu_seconds: float


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def is_answered(port: int, frame: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
            connection.sendall(frame)
            return len(connection.recv(SIZE.size, socket.MSG_WAITALL)) == SIZE.size
    except ConnectionError:
        return False


def start(*arguments: str) -> Started:
    """Start `sparklog up` on an empty folder, and stop it when it has answered and is ready."""
    frame = framed(API_VERSIONS, client_software_name="bench", client_software_version="1")
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as folder:
        port = free_port()
        command = [sys.executable, "-m", "sparklog.cli.up", "--data-dir", f"{folder}/data", "--grpc", "127.0.0.1:0"]
        hidden = Path(folder, "hidden")
        hidden.mkdir()
        (hidden / "hypothesis.py").write_text("raise ImportError")
        path = os.pathsep.join((str(hidden), os.getcwd()))
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--kafka", f"127.0.0.1:{port}", "--log-level", "warning", *arguments],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert process.stdout
        try:
            while not is_answered(port, frame):
                if process.poll() is not None or time.perf_counter() - began > TIMEOUT_S:
                    raise RuntimeError("the broker does not answer")
                time.sleep(EVERY_S)
            if arguments:
                process.stdout.readline()
            return Started(time.perf_counter() - began, BrokerProcess(process.pid, "").cpu_seconds())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    found = [start() for _ in range(runs)]
    print(f"a broker: {min(found).seconds:.2f} s, {min(each.cpu_seconds for each in found):.2f} s of CPU")
    several = [start("--brokers", str(BROKERS)) for _ in range(runs)]
    print(f"a cluster of {BROKERS}: {min(several).seconds:.2f} s")


if __name__ == "__main__":
    main()
