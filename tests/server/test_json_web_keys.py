"""The keys of tokens, fetched over HTTP: times of fetches, and failures of the server."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from sparklog.base import urls
from sparklog.base.errors import ConfigError
from sparklog.server import json_web_keys
from sparklog.server.json_web_keys import JsonWebKeys
from support.issuer import Answers, Issuer, http_server
from support.patience import until

HOUR_MS = 3_600_000


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def server(issuer: Issuer) -> Iterator[Answers]:
    with http_server() as answers:
        answers.body = json.dumps(issuer.key_set()).encode()
        yield answers


@asynccontextmanager
async def keys_of(url: str, refresh_ms: int = HOUR_MS) -> AsyncIterator[JsonWebKeys]:
    keys = JsonWebKeys(url, refresh_ms)
    keys.start()
    try:
        yield keys
    finally:
        await keys.stop()


async def is_known(keys: JsonWebKeys, key_id: str) -> bool:
    return bool(await keys.find(key_id, "RS256"))


async def test_an_unknown_key_is_looked_for_once_in_a_while(
    server: Answers, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keys_of(server.url) as keys:
        assert await is_known(keys, "rsa-1")
        issuer.rotate()
        server.body = json.dumps(issuer.key_set()).encode()
        assert not await is_known(keys, "rsa-2")  # the last fetch was less than PAUSE_S ago
        assert len(server.requests) == 1

        monkeypatch.setattr(json_web_keys, "PAUSE_S", 0.0)
        assert all(await asyncio.gather(*(is_known(keys, "rsa-2") for _ in range(50))))
        assert len(server.requests) == 2  # one for all of them
        assert not await is_known(keys, "rsa-1")


async def test_keys_are_fetched_again_after_a_time(server: Answers, issuer: Issuer) -> None:
    async with keys_of(server.url, refresh_ms=1) as keys:
        await until(lambda: len(server.requests) > 2, "it is fetched several times")
        assert await is_known(keys, "rsa-1")


async def test_keys_over_https_come_from_a_server_that_an_authority_vouches_for(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for host, is_trusted in (("127.0.0.1", False), ("127.0.0.1", True), ("elsewhere.example", True)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host).configure_cert(context)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem") if is_trusted else "")
        caplog.clear()
        with http_server(context) as answers:
            answers.body = json.dumps(issuer.key_set()).encode()
            async with keys_of(answers.url) as keys:
                assert await is_known(keys, "rsa-1") == (is_trusted and host == "127.0.0.1")
                assert ("CERTIFICATE_VERIFY_FAILED" in caplog.text) != bool(answers.requests)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b"", "answers with HTTP status 500"),
        (404, b"", "answers with HTTP status 404"),
        (200, b"<html>", "no JSON Web Key Set with a public key"),
        (200, b'{"keys": []}', "no JSON Web Key Set with a public key"),
        (200, b"[" * 100_000, "no JSON Web Key Set with a public key"),
        (200, b"x" * (urls.MAX_BYTES + 1), "has more than 1048576 bytes"),
    ],
)
async def test_a_set_that_cannot_be_used_leaves_the_keys_and_is_warned_of(
    server: Answers, status: int, body: bytes, reason: str, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    async with keys_of(server.url + "/keys?token=hunter3") as keys:
        await until(lambda: len(server.requests) == 1 and keys._keys, "the keys are there")
        server.status, server.body = status, body
        monkeypatch.setattr(json_web_keys, "PAUSE_S", 0.0)
        with caplog.at_level(logging.WARNING):
            assert not await is_known(keys, "rsa-2")
        assert await is_known(keys, "rsa-1")

    assert reason in caplog.text
    assert f"{json_web_keys.KEY} = {server.url}/keys: " in caplog.text
    assert "the 3 keys fetched before stay" in caplog.text
    assert "hunter" not in caplog.text


async def test_a_silent_server_delays_those_who_ask_for_a_limited_time(
    server: Answers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(json_web_keys, "TIMEOUT_S", 0.05)  # the thread waits longer, and nobody waits for the thread
    server.is_silent.set()
    async with keys_of(server.url) as keys:
        assert not await is_known(keys, "rsa-1")
    assert "no answer in 0.1 s; no token is accepted until then" in caplog.text


@pytest.mark.slow
async def test_a_server_that_comes_later_is_asked_again(
    server: Answers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(json_web_keys, "PAUSE_S", 0.01)
    server.status = 503
    async with keys_of(server.url) as keys:
        await until(lambda: len(server.requests) > 1, "it is asked again")
        server.status = 200
        await until(lambda: bool(keys._keys), "the keys are there")


@pytest.mark.parametrize(
    "url",
    ["keys.json", "ftp://host/keys", "https://", "file://host/keys", "", "http://[::1", "https://a:hunter2@b/keys"],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl.oauthbearer.jwks.endpoint.url: it must be a URL such as"):
        JsonWebKeys(url, HOUR_MS)


def test_a_file_without_keys_is_named() -> None:
    with pytest.raises(ConfigError, match=r"file:///nowhere/keys.json: .* No such file"):
        JsonWebKeys("file:///nowhere/keys.json", HOUR_MS)
