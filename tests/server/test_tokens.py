"""Verification of tokens: signatures, claims, time, and texts that are no token."""

from __future__ import annotations

import base64
import hmac
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import SaslAuthenticationFailed
from sparklog.server import json_web_keys
from sparklog.server.json_web_keys import JsonWebKeys
from sparklog.server.tokens import TokenVerifier, VerifiedToken
from sparklog.testing.sim.clock import SimClock
from support.issuer import AUDIENCE, ISSUER, Issuer

Make = Callable[[Issuer], str]
NOW_S = 1_700_000_000


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def clock() -> SimClock:
    return SimClock(NOW_S * 1000)


@pytest.fixture
def verifier(issuer: Issuer, clock: SimClock, tmp_path: Path) -> TokenVerifier:
    return of_keys(issuer.publish(tmp_path / "keys.json"), clock)


def of_keys(url: str, clock: SimClock, **config: Any) -> TokenVerifier:
    expected = {"sasl_oauthbearer_expected_issuer": ISSUER, "sasl_oauthbearer_expected_audience": (AUDIENCE, "other")}
    return TokenVerifier(BrokerConfig(**expected | config), clock, JsonWebKeys(url, 3_600_000))


def of_now(issuer: Issuer, **claims: Any) -> str:
    return issuer.token(**{"now_s": NOW_S} | claims)


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS384", "ES256", "EdDSA"])
async def test_a_token_names_its_user_until_it_expires(
    verifier: TokenVerifier, issuer: Issuer, clock: SimClock, algorithm: str
) -> None:
    token = of_now(issuer, valid_s=10, algorithm=algorithm)

    assert await verifier.verify(token) == VerifiedToken("alice", (NOW_S + 10) * 1000)
    clock.advance(9_999)
    assert (await verifier.verify(token)).user == "alice"
    clock.advance(1)
    with pytest.raises(SaslAuthenticationFailed):
        await verifier.verify(token)


async def test_a_token_without_a_key_id_is_checked_with_every_key(verifier: TokenVerifier, issuer: Issuer) -> None:
    token = of_now(issuer, header={"kid": None})
    assert "kid" not in jwt.get_unverified_header(token)
    assert (await verifier.verify(token)).user == "alice"


async def test_another_claim_may_name_the_user(issuer: Issuer, clock: SimClock, tmp_path: Path) -> None:
    url = issuer.publish(tmp_path / "keys.json")
    verifier = of_keys(url, clock, sasl_oauthbearer_sub_claim_name="email")

    assert (await verifier.verify(of_now(issuer, sub=None, email="a@b.c"))).user == "a@b.c"
    with pytest.raises(SaslAuthenticationFailed):
        await verifier.verify(of_now(issuer))


async def test_without_an_expected_audience_a_token_for_somebody_else_is_refused(
    issuer: Issuer, clock: SimClock, tmp_path: Path
) -> None:
    verifier = of_keys(issuer.publish(tmp_path / "keys.json"), clock, sasl_oauthbearer_expected_audience=())

    assert (await verifier.verify(of_now(issuer, aud=None))).user == "alice"
    with pytest.raises(SaslAuthenticationFailed):
        await verifier.verify(of_now(issuer))


async def test_the_clock_of_the_issuer_may_be_ahead(verifier: TokenVerifier, issuer: Issuer) -> None:
    assert await verifier.verify(of_now(issuer, iat=NOW_S + 30, nbf=NOW_S + 30))
    for claim in ("iat", "nbf"):
        with pytest.raises(SaslAuthenticationFailed):
            await verifier.verify(of_now(issuer, **{claim: NOW_S + 31}))


def public_pem(issuer: Issuer) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return issuer.rsa.public_key().public_bytes(serialization.Encoding.PEM, form)


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def with_hmac(issuer: Issuer) -> str:
    """A token signed with the public key as a symmetric secret, which PyJWT refuses to sign."""
    signed = part({"alg": "HS256", "kid": issuer.key_id("rsa")}) + "." + of_now(issuer).split(".")[1]
    digest = hmac.digest(public_pem(issuer), signed.encode(), "sha256")
    return signed + "." + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def unsigned(issuer: Issuer, header: Any, signature: str = "") -> str:
    return f"{part(header)}.{of_now(issuer).split('.')[1]}.{signature}"


WRONG: dict[str, Make] = {
    "expired": lambda issuer: of_now(issuer, valid_s=0),
    "no exp": lambda issuer: of_now(issuer, exp=None),
    "exp is text": lambda issuer: of_now(issuer, exp="never"),
    "exp is true": lambda issuer: of_now(issuer, exp=True),
    "exp is endless": lambda issuer: of_now(issuer, exp=float("inf")),
    "no iat": lambda issuer: of_now(issuer, iat=None),
    "another issuer": lambda issuer: of_now(issuer, iss="https://else.example"),
    "no issuer": lambda issuer: of_now(issuer, iss=None),
    "another audience": lambda issuer: of_now(issuer, aud="else"),
    "no audience": lambda issuer: of_now(issuer, aud=None),
    "no user": lambda issuer: of_now(issuer, sub=None),
    "an empty user": lambda issuer: of_now(issuer, sub=" "),
    "a number as user": lambda issuer: of_now(issuer, sub=5),
    "another key": lambda issuer: of_now(issuer, key=rsa.generate_private_key(65537, 2048)),
    "another key, unnamed": lambda issuer: of_now(
        issuer, key=rsa.generate_private_key(65537, 2048), header={"kid": None}
    ),
    "an unknown key": lambda issuer: of_now(issuer, header={"kid": "x"}),
    "the key of another algorithm": lambda issuer: of_now(issuer, header={"kid": issuer.key_id("ec")}),
    "no signature": lambda issuer: of_now(issuer).rpartition(".")[0] + ".",
    "alg none": lambda issuer: unsigned(issuer, {"alg": "none"}),
    "alg None": lambda issuer: unsigned(issuer, {"alg": None, "kid": issuer.key_id("rsa")}),
    "alg a list": lambda issuer: unsigned(issuer, {"alg": ["RS256"]}, "AAAA"),
    "HS256 by the public key": with_hmac,
    "a deep header": lambda issuer: base64.urlsafe_b64encode(b"[" * 30_000).decode().rstrip("=") + ".AA.AA",
    "a header that is no object": lambda issuer: unsigned(issuer, [1]),
    "a critical extension": lambda issuer: of_now(issuer, header={"crit": ["x"], "x": 1}),
    "too long": lambda issuer: of_now(issuer, more="x" * 70_000),
    "not ASCII": lambda issuer: of_now(issuer) + "é",
    "empty": lambda _: "",
    "dots": lambda _: "..",
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
async def test_any_other_token_names_nobody_and_is_not_repeated(
    verifier: TokenVerifier, issuer: Issuer, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    token = make(issuer)
    with caplog.at_level(logging.DEBUG), pytest.raises(SaslAuthenticationFailed) as refused:
        await verifier.verify(token)

    assert str(refused.value) == "Authentication failed: the token is invalid or has expired"
    assert "a token is refused: " in caplog.text
    assert not any(len(each) > 8 and each in caplog.text for each in token.split("."))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.lists(st.binary(max_size=20), min_size=2, max_size=4).map(
    lambda parts: ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts)
))  # fmt: skip
async def test_garbage_names_nobody(verifier: TokenVerifier, text: str) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        await verifier.verify(text)


async def test_a_removed_key_verifies_nothing_after_a_minute(issuer: Issuer, clock: SimClock, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    verifier = of_keys(issuer.publish(file), clock)
    token = of_now(issuer)
    await verifier.verify(token)

    Issuer().publish(file)
    verifier.keys.read_file()
    clock.advance(60_000)
    with pytest.raises(SaslAuthenticationFailed):
        await verifier.verify(token)


def test_keys_that_are_of_no_use_are_left_out(issuer: Issuer) -> None:
    usable = issuer.key_set()["keys"]
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    others = [secret, {"kty": "RSA"}, {"kty": "EC", "crv": "P-0"}, usable[0] | {"use": "enc"}, usable[0] | {"n": 1},
              usable[0] | {"alg": "HS256"}, usable[0] | {"kid": 5}, "x", None]  # fmt: skip
    found = json_web_keys.parse_keys(json.dumps({"keys": [*others, *usable]}).encode())

    assert [key.key_id for key in found] == [key["kid"] for key in usable]
