"""Options of the schema registry's client, in a module that is cheap to load."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """The URLs of the registry, and the client's credentials."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    """USER:PASSWORD."""
    token: str | None = field(default=None, repr=False)
    truststore: str | None = None
    """A PEM file with the authorities that may sign the registry's certificate; None: those of the system."""
    keystore: str | None = None
    """A PEM file with key and certificate of this client."""
