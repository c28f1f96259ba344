"""Packages of sparklog's optional extra, and advice when one is missing."""

from __future__ import annotations

OF_SPARK = ("apscheduler", "delta", "deltalake", "pandas", "py4j", "pyspark")
"""Packages that jobs and the Spark source import, but brokers and clients do not."""


def advice(missing: ImportError) -> str:
    """Return an instruction to install the extra that has a missing module; empty if no extra has it."""
    module = (missing.name or "").partition(".")[0]
    if not isinstance(missing, ModuleNotFoundError) or module not in OF_SPARK:
        return ""
    return f"{module} is not installed: pip install 'sparklog[spark]'"
