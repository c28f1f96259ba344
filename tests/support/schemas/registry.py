"""A schema registry that speaks as much of Confluent's REST API as serializers and readers need, and can fail."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Json = dict[str, Any]


@dataclass
class FakeRegistry:
    """Its schemas, and what it was asked. Change `authorization` and `failures` as you like."""

    url: str = ""
    authorization: str | None = None
    """The header that each request must have."""
    failures: list[int] = field(default_factory=list)
    """The statuses of the next answers."""
    requests: list[str] = field(default_factory=list)
    schemas: list[Json] = field(default_factory=list)
    """By number; the first has 1."""
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of each subject's versions; the first is version 1."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, subject: str, schema: Any, references: list[Json] | None = None) -> int:
        """Add a version with this schema; return its number."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return int(self.add(subject, {"schema": text, "references": references or []})["id"])

    def register_protobuf(self, subject: str, file: bytes, references: list[Json] | None = None) -> int:
        """The same of a FileDescriptorProto. It is given back with `format=serialized`, and else some text."""
        schema = {"schema": base64.b64encode(file).decode(), "schemaType": "PROTOBUF", "references": references or []}
        return int(self.add(subject, schema)["id"])

    def lookup(self, subject: str, given: Json) -> Json | None:
        """Return the version of the subject with this schema; None: it has none."""
        numbers = self.subjects.get(subject, [])
        found = [i for i, number in enumerate(numbers) if self.schemas[number - 1]["kept"] == _kept(given)]
        return self.version(subject, found[0] + 1) if found else None

    def add(self, subject: str, given: Json) -> Json:
        kept = _kept(given)
        with self.lock:
            found = next((each for each in self.schemas if each["kept"] == kept), None)
            if found is None:
                found = {"kept": kept, "id": len(self.schemas) + 1, "guid": str(uuid.uuid4())}
                self.schemas.append(found)
            versions = self.subjects.setdefault(subject, [])
            if found["id"] not in versions:
                versions.append(found["id"])
            return self.version(subject, versions.index(found["id"]) + 1)

    def version(self, subject: str, version: int) -> Json:
        found = self.schemas[self.subjects[subject][version - 1] - 1]
        return {"subject": subject, "version": version, "id": found["id"], "guid": found["guid"], **found["kept"]}

    def guid(self, number: int) -> uuid.UUID:
        return uuid.UUID(self.schemas[number - 1]["guid"])

    def answer(self, method: str, path: list[str], body: Json | None) -> Any:  # noqa: PLR0911 - a case for each path
        """Return what a request is answered; None: not found."""
        match method, path:
            case "GET", ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                found = self.schemas[int(number) - 1]
                return {"guid": found["guid"], **found["kept"]}
            case "GET", ["schemas", "guids", guid]:
                return next(({"id": each["id"], **each["kept"]} for each in self.schemas if each["guid"] == guid), None)
            case "GET", ["subjects", subject, "versions"] if subject in self.subjects:
                return list(range(1, len(self.subjects[subject]) + 1))
            case "GET", ["subjects", subject, "versions", version] if subject in self.subjects:
                known = len(self.subjects[subject])
                number = known if version == "latest" else int(version)
                return self.version(subject, number) if number <= known else None
            case "POST", ["subjects", subject, "versions"]:
                return self.add(subject, body or {})
            case "POST", ["subjects", subject]:
                return self.lookup(subject, body or {})
        return None


def _kept(given: Json) -> Json:
    return {key: given[key] for key in ("schema", "schemaType", "references") if given.get(key)}


def _is_serialized(schema: Json) -> bool:
    return schema.get("schemaType") == "PROTOBUF" and "syntax" not in schema["schema"]


@contextmanager
def schema_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """A registry on a free port, with `tls` by HTTPS."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve("GET", None)

        def do_POST(self) -> None:
            self._serve("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _serve(self, method: str, body: Json | None) -> None:
            registry.requests.append(self.path)
            if registry.failures:
                return self._answer(registry.failures.pop(0), {"error_code": 50001, "message": "in trouble"})
            if registry.authorization and self.headers["Authorization"] != registry.authorization:
                return self._answer(401, {"error_code": 401, "message": "Unauthorized"})
            path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            found = registry.answer(method, path, body)
            if isinstance(found, dict) and _is_serialized(found) and "format=serialized" not in self.path:
                found = {**found, "schema": 'syntax = "proto3"; // as text'}
            if found is None:
                return self._answer(404, {"error_code": 40403, "message": "Schema not found"})
            return self._answer(200, found)

        def _answer(self, status: int, content: Any) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            if status == 302:
                self.send_header("Location", f"{registry.url}/elsewhere")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
