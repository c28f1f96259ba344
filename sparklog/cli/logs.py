"""Logging of servers: to standard error, one message per line, as text or as JSON (key `logging.format`).

    text    2026-11-26 05:21:33,123 INFO    broker 1 sparklog.broker.registration: registered as broker 1 with epoch 7
    json    {"time": "2026-11-26T05:21:33.123Z", "level": "INFO", "logger": "sparklog.broker.registration",
             "message": "registered as broker 1 with epoch 7", "broker": 1}

A message is one line in both forms, so that a name from a client cannot imitate a message. In the text form a traceback
follows its message, on lines of its own; in JSON it is the field `exception`. `time` is RFC 3339, in UTC. `broker` is
the id of the broker; other servers have none.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

import click

from sparklog.base.config_keys import JSON_LOGS

LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})


class TextFormatter(logging.Formatter):
    """Formats a record as the standard formatter does, with its message on one line."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return super().formatMessage(record).translate(LINE_ENDS)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object, in ASCII."""

    def __init__(self, broker: int | None = None) -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._broker is not None:
            told["broker"] = self._broker
        if record.exc_info and record.exc_info[0]:
            told["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = record.stack_info
        return json.dumps(told)


def report_failed_start(logger: logging.Logger, form: str, text: str) -> None:
    """Write the reason of a failed start, in the form of the log; as text without time and level."""
    if form == JSON_LOGS:
        logger.critical(text)
    else:
        click.echo(text, err=True)


def log_to_stderr(level: str, form: str, *, broker: int | None = None, prefix: str = "") -> None:
    """Log messages of at least `level` to standard error, and Python's warnings too.

    form: `logging.format`. broker: the id in JSON; None: no broker logs. prefix: precedes the logger's name in text
    """
    text = TextFormatter(f"%(asctime)s %(levelname)-7s {prefix}%(name)s: %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(broker) if form == JSON_LOGS else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)
