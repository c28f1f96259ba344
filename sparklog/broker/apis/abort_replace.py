"""AbortReplace: end a lease and remove what was staged under it; no error if the lease does not exist.

A commit under way finishes first, and stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.broker.api import Api
from sparklog.broker.replacements import Replacements


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortReplaceRequest:
    lease_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortReplaceResponse:
    pass


async def handle(request: AbortReplaceRequest, *, replacements: Replacements) -> AbortReplaceResponse:
    await replacements.abort(request.lease_id)
    return AbortReplaceResponse()


API = Api(name="AbortReplace", handle=handle)
