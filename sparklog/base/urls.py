"""The content of URLs (file, http, https), read with bounds of size and time.

Messages name the URL without its query, which may be a secret, and never the content. HTTPS accepts the
authorities of the system; SSL_CERT_FILE names others.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from sparklog.base.errors import ConfigError, NetworkException, SaslAuthenticationFailed

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 20
PIECE = 64 << 10
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
Result = TypeVar("Result")


def check_url(key: str, url: str) -> SplitResult:
    """Return the parts of a URL. Raises ConfigError, naming the configuration key, if it has an unsupported form."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return parts
    if parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc:
        return parts
    raise ConfigError(
        f"{key}: it must be a URL such as https://example.org/keys or file:///etc/keys.json, without a user or password"
    )


def path_of(url: str) -> str:
    """Return the path of a file URL; empty for any other URL."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else ""


def without_query(url: str) -> str:
    """Return the URL without its query, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def fetch(url: str, *, form: bytes | None = None, headers: Mapping[str, str] = NO_HEADERS) -> bytes:
    """Return the content of a URL. Blocks.

    form: the body of a POST; None: GET
    headers: of HTTP

    Raises NetworkException if the content cannot be read or is larger than MAX_BYTES, and SaslAuthenticationFailed if
    the server refuses the request (HTTP status 400, 401 or 403).
    """
    if path := path_of(url):
        try:
            with open(path, "rb") as file:
                return _read_bounded(file.read, url)
        except (OSError, ValueError) as error:
            raise _unreadable_error(url, error) from None
    answer = ask(url, body=form, headers=headers)
    if answer.status in (400, 401, 403):
        raise SaslAuthenticationFailed(f"{without_query(url)} refuses with HTTP status {answer.status}")
    if not 200 <= answer.status < 300:
        raise NetworkException(f"{without_query(url)} answers with HTTP status {answer.status}")
    return answer.content


class HttpResponse(NamedTuple):
    """The response of an HTTP server."""

    status: int
    content: bytes


def ask(
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    tls: ssl.SSLContext | None = None,
    redirects: bool = True,
) -> HttpResponse:
    """Return the response to a GET, or to a POST of `body`, whatever its status. Blocks.

    tls: for https; None: the authorities of the system
    redirects: whether to follow redirects. The headers are sent to the new address too, so do not follow redirects with
        credentials in the headers

    Raises NetworkException if there is no response within TIMEOUT_S, or one of more than MAX_BYTES.
    """
    try:
        with _opener(tls, redirects).open(urllib.request.Request(url, body, dict(headers)), timeout=TIMEOUT_S) as found:
            return HttpResponse(found.status, _read_bounded(found.read1, url))
    except urllib.error.HTTPError as error:
        with error:
            return HttpResponse(error.code, _read_bounded(error.read1, url))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _unreadable_error(url, error) from None


def _unreadable_error(url: str, error: Exception) -> NetworkException:
    reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
    return NetworkException(f"{without_query(url)} cannot be read: {reason}")


async def in_thread_for(seconds: float, work: Callable[[], Result]) -> Result:
    """Return the result of `work`, run in a thread of its own, so that a slow server does not occupy a shared thread.

    Raises TimeoutError after `seconds`; the thread's result is then dropped. The thread does not delay the end of the
    process.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def set_outcome(result: Result | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(set_outcome, result, failure)

    Thread(target=run, name="sparklog fetch", daemon=True).start()
    return await asyncio.wait_for(done, seconds)


def _read_bounded(read: Callable[[int], bytes], url: str) -> bytes:
    """Return all that `read` returns, within TIMEOUT_S. Raises NetworkException if it is too much or takes longer."""
    ends = time.monotonic() + TIMEOUT_S
    found = bytearray()
    while piece := read(PIECE):
        found += piece
        if len(found) > MAX_BYTES:
            raise NetworkException(f"{without_query(url)} has more than {MAX_BYTES} bytes")
        if time.monotonic() > ends:
            raise NetworkException(f"{without_query(url)} cannot be read within {TIMEOUT_S} s")
    return bytes(found)


def _opener(tls: ssl.SSLContext | None, redirects: bool) -> urllib.request.OpenerDirector:
    """Return an opener for http and https only, also after a redirect."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=tls),
        *([urllib.request.HTTPRedirectHandler()] if redirects else []),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener
