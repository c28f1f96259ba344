"""Which versions of an API of Kafka's protocol a broker serves."""

from __future__ import annotations

from typing import NamedTuple


class ApiVersion(NamedTuple):
    """One API by its number in Kafka's protocol, with the first and the last version that are served."""

    key: int
    min_version: int
    max_version: int
