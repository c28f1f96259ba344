"""The versions of a Kafka API that a broker serves."""

from __future__ import annotations

from typing import NamedTuple


class ApiVersion(NamedTuple):
    """One API: its key in Kafka's protocol, and the first and last version served."""

    key: int
    min_version: int
    max_version: int
