"""Packages that come with an extra of sparklog's, and what to say where one is missing."""

from __future__ import annotations

OF_SPARK = ("apscheduler", "delta", "deltalake", "pandas", "py4j", "pyspark")
"""What jobs and the Spark source import, and a broker or a client does not."""


def advice(missing: ImportError) -> str:
    """The extra to install for a module that was not found; empty where it belongs to none."""
    module = (missing.name or "").partition(".")[0]
    if not isinstance(missing, ModuleNotFoundError) or module not in OF_SPARK:
        return ""
    return f"{module} is not installed: pip install 'sparklog[spark]'"
