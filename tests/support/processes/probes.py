"""What a server answers to those who probe it over HTTP."""

from __future__ import annotations

import json
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import urlopen

from support.patience import PATIENCE_S

NO_ANSWER = 0
Answer = tuple[int, dict[str, object]]


def probe(address: str, path: str) -> Answer:
    """Status and JSON of `path`; status NO_ANSWER where nothing listens at the address."""
    try:
        with urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)
    except (OSError, HTTPException) as error:  # refused, or cut off by the end of the process
        return NO_ANSWER, {"error": str(error)}
