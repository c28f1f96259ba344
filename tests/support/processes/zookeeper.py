"""A ZooKeeper server of a test's own, from PySpark's jars: one that can be killed, stopped and started again.

server = ZooKeeperServer(folder)    `folder` keeps what it has stored
server.start() … server.kill() … server.start() … server.stop()
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from sparklog.base.jaas import DIGEST_MODULE
from support.patience import PATIENCE_S, wait_until
from support.processes.java import JAVA
from support.processes.ports import reserve_port

TICK_MS = 200
TLS = """secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={keys}/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={keys}/ca.pem
ssl.trustStore.type=PEM
ssl.clientAuth=need
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
"""
LOGINS = """authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
"""
TRY_S = 5  # a server that has just begun may take a connection and say nothing: then it is asked again
JARS = ("zookeeper-", "slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core", "metrics-core", "snappy-java",
        "netty-", "commons-io", "commons-cli")  # fmt: skip
OPTIONS = ("-Xmx128m", "-Dlog4j2.level=WARN", "-Dzookeeper.admin.enableServer=false",
           "-Dzookeeper.4lw.commands.whitelist=*", "-Dzookeeper.forceSync=no")  # fmt: skip


class ZooKeeperServer:
    """`address` is what clients connect to; it stays the same when the server is started again."""

    def __init__(
        self,
        folder: Path,
        keys: Path | None = None,
        *,
        users: Mapping[str, str] | None = None,
        needs_login: bool = False,
    ) -> None:
        """keys: a folder with server.pem and ca.pem, for TLS with client certificates at `secure_address`.

        users: those who may log in, with their passwords
        needs_login: whether nobody else is served
        """
        self._folder = folder
        self._users = users
        self._secure_port = reserve_port(self) if keys else 0
        self._port = reserve_port(self)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "zoo.cfg").write_text(
            f"dataDir={folder}/data\nclientPort={self._port}\nclientPortAddress=127.0.0.1\ntickTime={TICK_MS}\n"
            f"minSessionTimeout={2 * TICK_MS}\nmaxSessionTimeout=60000\nmaxClientCnxns=0\nmaxCnxns=0\n"
            + (TLS.format(port=self._secure_port, keys=keys) if keys else "")
            + (LOGINS if users else "")
            + ("sessionRequireClientSASLAuth=true\n" if needs_login else "")
        )
        if users:
            self.set_users(users)

    def set_users(self, users: Mapping[str, str]) -> None:
        """Change who may log in, from the next start on."""
        options = "".join(f'    user_{user}="{password}"\n' for user, password in users.items())
        (self._folder / "jaas.conf").write_text(f"Server {{\n{DIGEST_MODULE} required\n{options};\n}};\n")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def secure_address(self) -> str:
        """For clients with TLS, by the name in its certificate."""
        return f"localhost:{self._secure_port}"

    def start(self) -> None:
        """Returns when it answers."""
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *JAVA,
                    *OPTIONS,
                    *(["-Djava.security.auth.login.config=jaas.conf"] if self._users else []),
                    "-cp",
                    class_path(),
                    "org.apache.zookeeper.server.ZooKeeperServerMain",
                    "zoo.cfg",
                ],
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(self._has_started, "ZooKeeper serves requests", tell=self.log, every_s=0.05)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._wait()

    def pause(self) -> None:
        """It answers nobody, and no session expires."""
        assert self._process
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # until it has stopped: it may answer meanwhile

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Does nothing where it does not run."""
        if self._process:
            self.resume()
            self._signal(signal.SIGTERM)
            self._wait()

    def log(self) -> str:
        return (self._folder / "zookeeper.log").read_text(errors="replace")

    def shell(self, *commands: str) -> str:
        """What ZooKeeper's own command-line tool prints: `shell("ls /", "get /controller")`."""
        done = subprocess.run(
            [*JAVA, *OPTIONS, "-cp", class_path(), "org.apache.zookeeper.ZooKeeperMain", "-server", self.address],
            input="\n".join(commands), capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        )  # fmt: skip
        return done.stdout

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def _has_started(self) -> bool:
        assert self._process
        assert self._process.poll() is None, f"ZooKeeper has ended\n{self.log()}"
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=TRY_S) as connection:
                connection.sendall(b"isro")  # as "ruok", but it knows whether requests are served yet
                return connection.recv(4) == b"rw"
        except OSError:
            return False

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _wait(self) -> None:
        if self._process:
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"ZooKeeper does not end\n{self.log()}") from None
            self._process = None


def class_path() -> str:
    """Only what ZooKeeper needs of PySpark's jars: a JVM that opens all of them starts a second later."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise RuntimeError("pyspark is not installed: there is no ZooKeeper to test with")
    jars = sorted(path for path in (Path(found.origin).parent / "jars").glob("*.jar") if path.name.startswith(JARS))
    return ":".join(map(str, jars))
