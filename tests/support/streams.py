"""Streaming queries start on a busy machine, too.

Spark gives the Python process of a streaming source 10 s to start, a limit that no setting changes. A query that fails
for it has done nothing yet, and is started again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from support.patience import PATIENCE_S, wait_until


@contextmanager
def patient_starts() -> Iterator[None]:
    """Inside the block, `DataStreamWriter.start` returns once the query has its sources, or has failed."""
    start = DataStreamWriter.start

    def start_patiently(self: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            query = start(self, *args, **options)
            wait_until(lambda: has_begun(query), "the query begins", every_s=0.05)  # noqa: B023
            if not lacks_process(query) or time.monotonic() > deadline:
                return query

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataStreamWriter, "start", start_patiently)
        yield


def lacks_process(query: StreamingQuery) -> bool:
    """Whether the query has failed, because a Python process did not start in time."""
    return "Python worker failed to connect back" in str(query.exception())


def has_begun(query: StreamingQuery) -> bool:
    return not (query.isActive and query.status["message"].startswith("Initializing"))
