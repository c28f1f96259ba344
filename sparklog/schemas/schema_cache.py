"""A cache of schemas by the ids in records: those of the plan, and those from the registry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from sparklog.base.errors import RegistryError, SchemaError
from sparklog.schemas import column_kernels as kernels
from sparklog.schemas.framing import SchemaId
from sparklog.schemas.registry import Registry, SchemaText, UnknownSchema
from sparklog.schemas.registry_options import RegistryOptions

log = logging.getLogger(__name__)

MOST_UNKNOWN = 20
"""Number of unknown ids after which a column counts as written with another registry."""

Known = TypeVar("Known")


class SchemaCache(Generic[Known]):
    """The compiled schemas of a decoder by id. Asks the registry for an unknown id once in a process.

    learn: compiles a schema; raises SchemaError if it cannot be read
    brought: schemas of the plan
    known: compiled schemas of the plan
    serialized: as of `Registry`
    """

    def __init__(
        self,
        registry: RegistryOptions,
        learn: Callable[[SchemaText], Known],
        brought: Mapping[SchemaId, SchemaText],
        *,
        known: Mapping[SchemaId, Known] | None = None,
        serialized: bool = False,
    ) -> None:
        self._options = registry
        self._learn = learn
        self._brought = brought
        self._known = dict(known or {})
        self._serialized = serialized
        self._problems: dict[SchemaId, tuple[int, str]] = {}
        self._registry: Registry | None = None

    def look_up(self, ids: Sequence[SchemaId]) -> tuple[list[Known | None], list[int]]:
        """Return the compiled schema of each id, or None and the fault of its bodies.

        Raises RegistryError, with the id, if the registry gives no answer.
        """
        for each in ids:
            if each not in self._known and each not in self._problems:
                self._find(each)
        known = [self._known.get(each) for each in ids]
        return known, [self._problems[each][0] if each in self._problems else 0 for each in ids]

    def reason(self, wanted: SchemaId) -> str:
        """Return why bodies of an id cannot be read."""
        return self._problems[wanted][1]

    def _find(self, wanted: SchemaId) -> None:
        try:
            self._known[wanted] = self._learn(self._schema(wanted))
        except UnknownSchema as error:
            self._problems[wanted] = kernels.UNKNOWN_SCHEMA, str(error)
            unknown = [each for each, (fault, _) in self._problems.items() if fault == kernels.UNKNOWN_SCHEMA]
            if len(unknown) > MOST_UNKNOWN:
                some = ", ".join(map(str, unknown[:5]))
                raise RegistryError(
                    f"records name schemas that the registry does not have, such as {some}: "
                    "check schema.registry.url, and whether the topic is written with ids of a registry at all"
                ) from None
        except RegistryError as error:
            raise RegistryError(f"the records of schema {wanted} cannot be read: {error}") from None
        except SchemaError as error:
            self._problems[wanted] = kernels.INCOMPATIBLE, f"schema {wanted}: {error}"
            log.warning("the records of schema %s are malformed: %s", wanted, error)

    def _schema(self, wanted: SchemaId) -> SchemaText:
        if (brought := self._brought.get(wanted)) is not None:
            return brought
        known = _ASKED.setdefault((self._options, self._serialized), {})
        if wanted not in known:
            if self._registry is None:
                self._registry = Registry(self._options, serialized=self._serialized)
            known[wanted] = self._registry.by_id(wanted)
        return known[wanted]


_ASKED: dict[tuple[RegistryOptions, bool], dict[SchemaId, SchemaText]] = {}
"""Schemas that this process has asked for: a worker runs many tasks."""
