"""Changes of transactional ids whose records are not committed yet.

An id has one change at a time. Only extensions, which add partitions or task attempts, may overlap.
"""

from __future__ import annotations

from collections import Counter

from sparklog.base.errors import ConcurrentTransactions


class PendingChanges:
    """The numbers of pending changes and of pending extensions of each id."""

    def __init__(self) -> None:
        self._changing: Counter[str] = Counter()
        self._extending: Counter[str] = Counter()

    def begin(self, name: str, *, is_extension: bool = False) -> None:
        """Count a change whose record is about to be written; `ended` must follow."""
        (self._extending if is_extension else self._changing)[name] += 1

    def ended(self, name: str, *, is_extension: bool = False) -> None:
        """Count a change as ended: its record is committed, or has failed."""
        pending = self._extending if is_extension else self._changing
        pending[name] -= 1
        if not pending[name]:
            del pending[name]

    def check_idle(self, name: str) -> None:
        """Raise ConcurrentTransactions if a change other than an extension is pending."""
        if name in self._changing:
            raise ConcurrentTransactions(f"{name!r} has a change that is not committed yet")

    def is_extending(self, name: str) -> bool:
        """Return whether an extension is pending."""
        return name in self._extending

    def is_pending(self, name: str) -> bool:
        """Return whether any change is pending."""
        return name in self._changing or name in self._extending
