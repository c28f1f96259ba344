"""An issuer of tokens: it signs JSON Web Tokens, and publishes its keys as a file or over HTTP."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "sparklog"


class Issuer:
    """One key of each kind; `rotate` replaces them."""

    def __init__(self) -> None:
        self._turn = 0
        self.rotate()

    def rotate(self) -> None:
        """Sign with new keys from now on."""
        self._turn += 1
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.ed = ed25519.Ed25519PrivateKey.generate()

    def key_id(self, kind: str) -> str:
        return f"{kind}-{self._turn}"

    def key_set(self) -> dict[str, list[dict[str, Any]]]:
        keys = [
            RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True) | {"kid": self.key_id("rsa"), "use": "sig"},
            ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True) | {"kid": self.key_id("ec"), "alg": "ES256"},
            OKPAlgorithm.to_jwk(self.ed.public_key(), as_dict=True) | {"kid": self.key_id("ed")},
        ]
        return {"keys": keys}

    def publish(self, file: Path) -> str:
        """Write the keys as a file that replaces the one before; its URL."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(self.key_set()))
        new.replace(file)
        return file.as_uri()

    def token(
        self,
        user: Any = "alice",
        *,
        valid_s: float = 3600,
        algorithm: str = "RS256",
        key: Any = None,
        header: dict[str, Any] | None = None,
        now_s: float | None = None,
        **claims: Any,
    ) -> str:
        """A token that is valid for so long. Claims and headers that are None are left out."""
        kind = {"E": "ec" if algorithm != "EdDSA" else "ed"}.get(algorithm[0], "rsa")
        now = time.time() if now_s is None else now_s
        usual = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": now + valid_s}
        named = {name: value for name, value in (usual | claims).items() if value is not None}
        headers = {"kid": self.key_id(kind)} | (header or {})
        headers = {name: value for name, value in headers.items() if value is not None}
        return jwt.encode(named, key or getattr(self, kind), algorithm, headers)


class Answers:
    """What the server answers, and what it was asked. Change `status` and `body` as you like."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.body = b""
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.is_silent = threading.Event()
        """While it is set, no request is answered."""
        self.goes_on = threading.Event()
        """Ends the silence for the requests that were asked in it."""


@contextmanager
def http_server(tls: ssl.SSLContext | None = None) -> Iterator[Answers]:
    """An HTTP server on a free port, with `tls` an HTTPS server."""
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.requests.append((self.path, dict(self.headers), b""))
            self._answer()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answers.requests.append((self.path, dict(self.headers), body))
            self._answer()

        def _answer(self) -> None:
            if answers.is_silent.is_set():
                answers.goes_on.wait()
            self.send_response(answers.status)
            self.send_header("Content-Length", str(len(answers.body)))
            self.end_headers()
            self.wfile.write(answers.body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    answers.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield answers
    finally:
        answers.goes_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
