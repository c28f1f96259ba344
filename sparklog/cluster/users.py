"""SCRAM credentials of users in the cluster store, at the paths and in the format of Kafka in ZooKeeper.

/config/users/U     {"version": 1, "config": {"SCRAM-SHA-256": "salt=…,stored_key=…,server_key=…,iterations=4096"}}

U is the user's name, escaped as in a URL; salt and keys are in base64. Other keys in a node are preserved. The store
holds only values that verify a password, never the password or a value that reveals it (RFC 5802).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Self

from sparklog.base.errors import NoNode
from sparklog.cluster.config_nodes import USERS, change_config, escape, read_config, unescape
from sparklog.cluster.store import Store, ensure_path

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384


class ScramMechanism(IntEnum):
    """Mechanisms by their numbers in Kafka's protocol (org.apache.kafka.clients.admin.ScramMechanism)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SASL and in the store, as SCRAM-SHA-256."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def hash(self) -> str:
        """Name of the hash function in `hashlib`."""
        return self.name.replace("_", "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The values that verify one user's password for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of_salted(cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> Self:
        """Return the credential of a password that was salted and hashed `iterations` times."""
        client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
        return cls(
            salt=salt,
            iterations=iterations,
            stored_key=hashlib.new(mechanism.hash, client_key).digest(),
            server_key=hmac.digest(salted, b"Server Key", mechanism.hash),
        )

    @classmethod
    def of_password(cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> Self:
        """Return the credential of a password. Slow on purpose: the time grows with `iterations`."""
        salted = hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the credential in a value of the store. Raises ValueError or KeyError if it is none."""
        values = dict(part.split("=", 1) for part in text.split(","))
        return cls(
            salt=base64.b64decode(values["salt"]),
            iterations=int(values["iterations"]),
            stored_key=base64.b64decode(values["stored_key"]),
            server_key=base64.b64decode(values["server_key"]),
        )

    def __str__(self) -> str:
        salt, stored_key, server_key = (
            base64.b64encode(value).decode() for value in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={self.iterations}"


class UserStore:
    """Reads and writes the credentials of a cluster's users. Calls block, as those of Store do, and need no lock."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        """Return the users that have a credential."""
        try:
            names = [unescape(name) for name in self._store.children(USERS)]
        except NoNode:
            return []
        return [name for name in names if self.credentials(name)]

    def credentials(self, name: str) -> dict[ScramMechanism, ScramCredential]:
        """Return a user's credentials by mechanism; empty if there is no such user."""
        config = read_config(self._store, _path(name))
        known = {mechanism: config.get(mechanism.sasl_name) for mechanism in ScramMechanism}
        return {mechanism: ScramCredential.parse(text) for mechanism, text in known.items() if text}

    def put(self, name: str, mechanism: ScramMechanism, credential: ScramCredential) -> None:
        """Create or replace a user's credential."""
        ensure_path(self._store, _path(name))
        change_config(self._store, _path(name), lambda config: config | {mechanism.sasl_name: str(credential)})

    def delete(self, name: str, mechanism: ScramMechanism) -> bool:
        """Delete a user's credential and return whether there was one."""
        if mechanism not in self.credentials(name):
            return False
        change_config(
            self._store,
            _path(name),
            lambda config: {key: text for key, text in config.items() if key != mechanism.sasl_name},
        )
        return True


def _path(name: str) -> str:
    return f"{USERS}/{escape(name)}"
