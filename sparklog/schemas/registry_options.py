"""Options of the schema registry's client: a module that costs nothing to load."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """Where the registry is, and how to show it who asks."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    """USER:PASSWORD."""
    token: str | None = field(default=None, repr=False)
    truststore: str | None = None
    """A PEM file with the authorities that sign the registry's certificate; None: those of the system."""
    keystore: str | None = None
    """A PEM file with key and certificate of this client."""
