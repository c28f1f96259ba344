"""The audit log of one broker: a JSON line for each decision on a client's action.

    {"time": "2026-11-26T03:04:05.678Z", "principal": "User:alice", "host": "10.1.2.3", "operation": "WRITE",
     "resource": "TOPIC", "name": "orders", "allowed": false, "reason": "no ACL of the resource allows it", "acl": null}

The same decision is written again only after DENIED_AGAIN_MS if denied, and after ALLOWED_AGAIN_MS if allowed: produce
and fetch requests would fill the disk otherwise. A changed decision is written at once. At most MAX_LINES_A_SECOND
lines are written in a second; the next line has the number of lines that were left out:

    {"time": "2026-11-26T03:04:06.000Z", "left_out": 7}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler

from sparklog.base.errors import ConfigError
from sparklog.security.acls import Action, AuthorizationDecision, Subject

DENIED_AGAIN_MS = 1_000
ALLOWED_AGAIN_MS = 60_000
MAX_LINES_A_SECOND = 1_000
MAX_REMEMBERED = 10_000
"""Maximum number of decisions whose time is known; beyond it, all are forgotten."""


class AuditLog:
    """Writes decisions. Used on one event loop."""

    def __init__(self, write: Callable[[str], None], time_ms: Callable[[], int]) -> None:
        self._write = write
        self._time_ms = time_ms
        self._written: dict[tuple[Subject, Action], tuple[int, bool]] = {}
        self._second = 0
        """The present second, since 1970."""
        self._lines = 0
        """Lines that were written or left out in this second."""

    def note(self, subject: Subject, action: Action, decision: AuthorizationDecision) -> None:
        """Write the decision, unless it was written shortly before."""
        now_ms = self._time_ms()
        last = self._written.get((subject, action))
        if last is not None:
            last_ms, was_allowed = last
            pause_ms = ALLOWED_AGAIN_MS if was_allowed else DENIED_AGAIN_MS
            if was_allowed is decision.is_allowed and 0 <= now_ms - last_ms < pause_ms:
                return
        if now_ms // 1_000 != self._second:
            if (left_out := self._lines - MAX_LINES_A_SECOND) > 0:
                self._write(json.dumps({"time": _text(now_ms), "left_out": left_out}))
            self._second, self._lines = now_ms // 1_000, 0
        self._lines += 1
        if self._lines > MAX_LINES_A_SECOND:
            return
        if len(self._written) >= MAX_REMEMBERED:
            self._written.clear()
        self._written[subject, action] = now_ms, decision.is_allowed
        self._write(_line(now_ms, subject, action, decision))


def open_audit_log(path: str, time_ms: Callable[[], int]) -> AuditLog:
    """Return a log that appends to a file. If log rotation renames the file, a new one is created.

    Raises ConfigError if the file cannot be opened.
    """
    try:
        handler = WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"authorizer.audit.log = {path!r}: {error.strerror}") from None
    logger = logging.Logger("sparklog.audit", logging.INFO)
    logger.addHandler(handler)
    return AuditLog(logger.info, time_ms)


def _line(time_ms: int, subject: Subject, action: Action, decision: AuthorizationDecision) -> str:
    return json.dumps(
        {
            "time": _text(time_ms),
            "principal": subject.principal,
            "host": subject.host,
            "operation": action.operation.name,
            "resource": action.resource_type.name,
            "name": action.name,
            "allowed": decision.is_allowed,
            "reason": decision.reason.value,
            "acl": str(decision.acl) if decision.acl else None,
        },
        ensure_ascii=False,
    )


def _text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
