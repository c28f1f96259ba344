"""The cluster store in ZooKeeper, through kazoo, for brokers on several machines.

Sessions, ephemeral nodes, watches and transactions are ZooKeeper's own. This module adds:

    waiting     While the connection is lost, a call waits for the connection and then for its answer, for the session
                time-out in all; then it raises ConnectionLoss. Only one call waits; other calls raise at once, so that
                an unreachable ZooKeeper does not take all of a broker's threads. Calls are sent only while there is a
                connection, so no call is carried out long after its caller got an error.
    silence     The client leaves a server that accepts a connection and then stays silent, before the session expires.
    watches     kazoo drops its watches when the connection is lost, and ZooKeeper when the session expires. All dropped
                watches are called on reconnection: some without a change, but no change is missed.
    sessions    When a session has expired, kazoo begins another as soon as a server answers. A process that was stopped
                learns of the expiry when it resumes: its pending calls raise SessionExpired.

    access      With a client certificate or a login, ZooKeeper knows the client. With `sets_acl`, only clients with the
                same subject or user can change the nodes. All clients may read them, except the values that verify
                users' passwords (kafka.zk.ZkData.defaultAcls).
    logins      kazoo stops when a login is refused, or when the server dies during it. The store starts it again every
                second until the store is closed: a broker must survive a server that restarts.

Watches and listeners are called one by one, on one thread, in the order of the events. Not done: Kerberos towards
ZooKeeper.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.exceptions import ConnectionLoss as KazooConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback, EventType, KazooState, KeeperState, WatchedEvent
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE
from msgspec import Struct

from sparklog.base.errors import (
    BadVersion,
    ConnectionLoss,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreError,
)
from sparklog.cluster.store import (
    ANY_VERSION,
    NO_OWNER,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    SessionListener,
    SessionState,
    Set,
    Watch,
)
from sparklog.cluster.watches import WatchCall

_SECRETS = "/config/users"
"""Nodes below this path hold values that verify passwords."""
RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
"""kazoo's policy for reconnecting to a server."""
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}
_ERRORS: dict[type[Exception], type[StoreError]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
    NotEmptyError: NotEmpty,
    SessionExpiredError: SessionExpired,
    KazooConnectionLoss: ConnectionLoss,
    ConnectionClosedError: ConnectionLoss,
    OperationTimeoutError: ConnectionLoss,
    KazooTimeoutError: ConnectionLoss,
    AuthFailedError: ConnectionLoss,
}
NEXT_LOGIN_S = 1.0
"""Pause between a refused login and the next one."""
logger = logging.getLogger(__name__)


class ZookeeperTls(NamedTuple):
    """TLS settings of the connections to ZooKeeper. The files are PEM, and are read at each connection."""

    truststore: str
    """Certificates of authorities that sign the servers' certificates, beside those of the system."""
    keystore: str = ""
    """The client's private key and certificates; empty: the client shows none."""
    key_password: str = ""
    checks_names: bool = True
    """Whether a server's certificate must name the host in `zookeeper.connect`."""


class ZookeeperLogin(NamedTuple):
    """A user of ZooKeeper's DigestLoginModule (SASL DIGEST-MD5)."""

    username: str
    password: str


class ZookeeperStore:
    """Implements Store."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        tls: ZookeeperTls | None = None,
        login: ZookeeperLogin | None = None,
        sets_acl: bool = False,
    ) -> None:
        """Create a store without a connection; `open` returns one that is connected.

        tls: None: connections without TLS
        login: None: connections without SASL
        sets_acl: whether new nodes get ACLs, which needs a client certificate or a login
        """
        self._hosts = hosts
        self._timeout_s = session_timeout_ms / 1000
        self._is_connected = threading.Event()
        self._waiting = threading.Lock()
        """Held by the call that waits for the connection."""
        self._closing = threading.Event()
        self._restarting = threading.Lock()
        """Held while kazoo's client starts again, or ends."""
        self._session_id = NO_OWNER
        self._listeners: list[SessionListener] = []
        self._missed: list[WatchCall] = []
        """Watches that kazoo has dropped, to call on reconnection."""
        self._sets_acl = sets_acl
        self._client = _client(hosts, self._timeout_s, tls, login)

    @classmethod
    def open(
        cls,
        hosts: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        tls: ZookeeperTls | None = None,
        login: ZookeeperLogin | None = None,
        sets_acl: bool = False,
    ) -> ZookeeperStore:
        """Connect to ZooKeeper and return the store. Blocks.

        hosts: HOST:PORT,… with /path at the end if the tree is not at the root; a missing path is created
        tls, login, sets_acl: as in the constructor

        Raises ConnectionLoss if no server answers within `connection_timeout_ms`, or if it refuses the login.
        """
        store = cls(hosts, session_timeout_ms=session_timeout_ms, tls=tls, login=login, sets_acl=sets_acl)
        _make_root(hosts, connection_timeout_ms / 1000, lambda servers: _client(servers, store._timeout_s, tls, login))
        store._client.add_listener(store._state_changed)
        _connect(store._client, hosts, connection_timeout_ms / 1000)
        store._is_connected.wait(store._timeout_s)  # until kazoo has reported its new session
        if login:
            try:
                store.exists("/")  # kazoo is connected before it logs in
            except ConnectionLoss:
                store.close()
                raise ConnectionLoss(f"{hosts} has refused the login of zookeeper.sasl.jaas.config") from None
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    def listen(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def get(self, path: str, watch: Watch | None = None) -> Node:
        data, stat = self._ask(path, lambda: self._client.get_async(path, self._watcher(watch, path)))
        return Node(data or b"", stat.version, stat.czxid, stat.ephemeralOwner)

    def exists(self, path: str, watch: Watch | None = None) -> bool:
        return self._ask(path, lambda: self._client.exists_async(path, self._watcher(watch, path))) is not None

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = self._ask(path, lambda: self._client.get_children_async(path, self._watcher(watch, path)))
        return sorted(names)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        acl = self._acl(path)

        def send() -> Any:
            return self._client.create_async(path, data, acl=acl, ephemeral=ephemeral, sequence=sequential)

        return str(self._ask(path, send))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return int(self._ask(path, lambda: self._client.set_async(path, data, version)).version)

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._ask(path, lambda: self._client.delete_async(path, version))

    def newest_change(self) -> int:
        return int(self._client.last_zxid)

    def multi(self, operations: Iterable[Operation]) -> None:
        listed = tuple(operations)
        if not listed:
            return
        transaction = TransactionRequest(self._client)
        for operation in listed:
            _add(transaction, operation, self._acl(operation.path))
        results = self._ask("multi", transaction.commit_async)
        for operation, result in zip(listed, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                raise _error(result, operation.path)

    def close(self) -> None:
        self._closing.set()
        with self._restarting:
            self._client.stop()
            self._client.close()

    def _ask(self, path: str, send: Callable[[], Any]) -> Any:
        """Send a request and return its answer within the session time-out. Raises ConnectionLoss or any StoreError."""
        deadline = time.monotonic() + self._timeout_s
        if not (self._is_connected.is_set() or self._is_connected_in_time()):
            raise ConnectionLoss(f"no ZooKeeper server of {self._hosts} can be reached")
        if self._closing.is_set():
            raise StoreError(f"{self._hosts} is closed")
        try:
            return send().get(timeout=max(0.0, deadline - time.monotonic()))
        except (KazooException, KazooTimeoutError) as error:
            raise _error(error, path) from error

    def _acl(self, path: str) -> list[ACL] | None:
        """Return the ACL of a new node; None: everybody may do everything."""
        if not self._sets_acl:
            return None
        return CREATOR_ALL_ACL if path.startswith(_SECRETS) else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def _is_connected_in_time(self) -> bool:
        if not self._waiting.acquire(blocking=False):
            return False
        try:
            return self._is_connected.wait(self._timeout_s)
        finally:
            self._waiting.release()

    def _watcher(self, watch: Watch | None, path: str) -> _Watcher | None:
        return _Watcher(self, watch, path) if watch else None

    def _state_changed(self, state: str) -> None:
        """Handle a change of the connection's state, on kazoo's connection thread."""
        if self._closing.is_set():
            return
        is_first = self._session_id == NO_OWNER
        if state == KazooState.CONNECTED:
            self._session_id = self._client.client_id[0]
            self._is_connected.set()
        else:
            self._is_connected.clear()
            if self._client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED):
                threading.Thread(target=self._log_in_again, name="zookeeper-login", daemon=True).start()
        if not is_first:
            self._client.handler.dispatch_callback(Callback("session", self._call_listeners, (_STATES[state],)))

    def _log_in_again(self) -> None:
        logger.warning("%s has refused the login of zookeeper.sasl.jaas.config, or ended during it", self._hosts)
        if not self._closing.wait(NEXT_LOGIN_S):
            with self._restarting:
                if not self._closing.is_set():
                    self._client.start_async()

    def _call_listeners(self, state: SessionState) -> None:
        for listener in self._listeners:
            _carry_out(partial(listener, state))
        if state is not SessionState.SUSPENDED:
            missed, self._missed = self._missed, []
            for watch, path in missed:
                _carry_out(partial(watch, path))

    def called(self, watch: Watch, path: str, event: WatchedEvent) -> None:
        """Handle an event of a node or of the connection, on kazoo's callback thread."""
        if event.type == EventType.NONE:
            self._missed.append(WatchCall(watch, path))
        else:
            _carry_out(partial(watch, path))


class _Watcher(Struct, frozen=True):
    """A watch for kazoo: equal to another watch of the same function on the same path."""

    store: ZookeeperStore
    watch: Watch
    path: str

    def __call__(self, event: WatchedEvent) -> None:
        self.store.called(self.watch, self.path, event)


def _servers(hosts: str) -> str:
    """Return `hosts`, with a single server named three times.

    kazoo waits for a server's answer for the session time-out divided by the number of servers. A single server may
    accept a connection and then stay silent, as ZooKeeper sometimes does while it starts: kazoo would wait for it until
    the session expires.
    """
    servers, slash, root = hosts.partition("/")
    return hosts if "," in servers else ",".join([servers] * 3) + slash + root


def _client(hosts: str, timeout_s: float, tls: ZookeeperTls | None, login: ZookeeperLogin | None) -> KazooClient:
    """Return a client without a connection."""
    options: dict[str, Any] = {}
    if login:
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", **login._asdict()}
    if tls:
        options |= {
            "use_ssl": True, "ca": tls.truststore or None, "check_hostname": tls.checks_names,
            "certfile": tls.keystore or None, "keyfile": tls.keystore or None, "keyfile_password": tls.key_password,
        }  # fmt: skip
    return KazooClient(_servers(hosts), timeout=timeout_s, connection_retry=dict(RETRY), **options)


def _make_root(hosts: str, timeout_s: float, client_of: Callable[[str], KazooClient]) -> None:
    servers, _, root = hosts.partition("/")
    if root:
        client = client_of(servers)
        _connect(client, servers, timeout_s)
        try:
            client.ensure_path_async("/" + root).get(timeout=timeout_s)
        except (KazooException, KazooTimeoutError) as error:
            raise _error(error, "/" + root) from error
        finally:
            client.stop()
            client.close()


def _connect(client: KazooClient, hosts: str, timeout_s: float) -> None:
    if not client.start_async().wait(timeout_s):
        client.stop()
        client.close()
        raise ConnectionLoss(f"no ZooKeeper server of {hosts} has answered within {timeout_s} s")


def _add(transaction: TransactionRequest, operation: Operation, acl: list[ACL] | None) -> None:
    match operation:
        case Create(path, data, ephemeral, sequential):
            transaction.create(path, data, acl=acl, ephemeral=ephemeral, sequence=sequential)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def _error(error: Exception, path: str) -> StoreError:
    kind = next((kind for base, kind in _ERRORS.items() if isinstance(error, base)), StoreError)
    return kind(f"{path}: {error}" if str(error) else f"{path}: {type(error).__name__}")


def _carry_out(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        logger.exception("a watch or a listener of the cluster store failed")
