"""The client of a schema registry that speaks Confluent's REST API (Confluent, Apicurio, Karapace, Redpanda …).

    GET /schemas/ids/{id}                       a schema by its number
    GET /schemas/guids/{guid}                   by its GUID
        …?format=serialized                     with Protobuf a descriptor, not the text of a .proto file
    GET /subjects/{subject}/versions            the versions of a subject
    GET /subjects/{subject}/versions/{version}  one of them, or `latest`
    POST /subjects/{subject}                    the number of a schema that the subject has
    POST /subjects/{subject}/versions           the number of a schema, which becomes the latest version if it is new

Each request has a time limit. Without an answer, or with an answer of a registry in trouble (5xx, 429), the client
tries each URL in turn, `ATTEMPTS` times. It follows no redirects: they could lead credentials elsewhere.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import UUID

from sparklog.base.errors import ConfigError, NetworkException, RegistryError
from sparklog.base.pem import read_pem
from sparklog.base.urls import HttpResponse, ask, without_query
from sparklog.schemas.framing import SchemaId
from sparklog.schemas.registry_options import RegistryOptions

ATTEMPTS = 3
PAUSE_S = 0.5
MOST_REFERENCES = 200
CONTENT = "application/vnd.schemaregistry.v1+json"
ACCEPT = f"{CONTENT}, application/json"

MOST_VERSIONS = 100
"""Number of newest versions of a subject that a plan of a read brings to tasks."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as the registry has it."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[str, ...] = ()
    """Texts of the schemas that it uses, each after its own references."""
    reference_names: tuple[str, ...] = ()
    """The names of the references; with Protobuf, names of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectVersion:
    """A version of a subject."""

    subject: str
    version: int
    ids: tuple[SchemaId, ...]
    """Its number, and its GUID if the registry has those."""
    schema: SchemaText


class UnknownSchema(RegistryError):
    """The registry has no such schema or subject."""


class Registry:
    """A client of the registry. Caches only the schemas to which others refer.

    serialized: whether Protobuf schemas are descriptors in base64, not the texts of .proto files
    """

    def __init__(
        self,
        options: RegistryOptions,
        sleep: Callable[[float], None] = time.sleep,
        *,
        serialized: bool = False,
    ) -> None:
        self._options = options
        self._form = "?format=serialized" if serialized else ""
        self._sleep = sleep
        self._headers = _request_headers(options)
        self._tls = _tls_context(options)
        self._referenced: dict[tuple[str, int], dict[str, Any]] = {}

    def by_id(self, wanted: SchemaId) -> SchemaText:
        """Return the schema. Raises UnknownSchema if the registry has none, RegistryError if it gives none."""
        kind = "guids" if isinstance(wanted, UUID) else "ids"
        return self._schema(self._get(f"schemas/{kind}/{wanted}{self._form}", f"schema {wanted}"))

    def guid(self, number: int) -> UUID:
        """Return the GUID of a schema. Raises as `by_id`, and RegistryError if the registry has no GUIDs."""
        found = self._get(f"schemas/ids/{number}", f"schema {number}")
        try:
            return UUID(found["guid"])
        except (KeyError, ValueError, TypeError, AttributeError):
            raise RegistryError(
                f"{self._where} gives no GUID for schema {number}, as Confluent Platform 8 does: headers cannot name it"
            ) from None

    def version(self, subject: str, version: int | str = "latest") -> SubjectVersion:
        """Return a version of a subject. Raises as `by_id`."""
        path = f"subjects/{quote(subject, safe='')}/versions/{version}{self._form}"
        found = self._get(path, f"subject {subject}")
        guid = found.get("guid")
        try:
            ids: tuple[SchemaId, ...] = (int(found["id"]), *([UUID(guid)] if guid else []))
            return SubjectVersion(subject=subject, version=int(found["version"]), ids=ids, schema=self._schema(found))
        except (KeyError, ValueError, TypeError) as wrong:
            raise RegistryError(f"{self._where} answers for subject {subject} without {wrong}") from None

    def versions(self, subject: str, most: int) -> list[SubjectVersion]:
        """Return the newest versions of a subject, at most `most`, oldest first. Raises as `by_id`."""
        numbers = self._get(f"subjects/{quote(subject, safe='')}/versions", f"subject {subject}")
        if not isinstance(numbers, list) or not all(isinstance(each, int) for each in numbers):
            raise RegistryError(f"{self._where} answers for subject {subject} with no list of versions")
        return [self.version(subject, each) for each in sorted(numbers)[-most:]]

    def register(self, subject: str, schema: SchemaText) -> int:
        """Register a schema as the latest version of the subject, unless the subject has it; return its number.

        Raises RegistryError if the registry refuses it, or gives no answer.
        """
        return self._number_of(f"subjects/{quote(subject, safe='')}/versions", subject, schema)

    def lookup(self, subject: str, schema: SchemaText) -> int:
        """Return the number of a schema that some version of the subject has. Raises as `by_id`."""
        return self._number_of(f"subjects/{quote(subject, safe='')}", subject, schema)

    def _number_of(self, path: str, subject: str, schema: SchemaText) -> int:
        kind = {} if schema.kind == "AVRO" else {"schemaType": schema.kind}
        found = self._request(path, f"subject {subject} with this schema", {"schema": schema.text, **kind})
        if not isinstance(found, dict) or not isinstance(found.get("id"), int):
            raise RegistryError(f"{self._where} answers for subject {subject} without the id of the schema")
        return int(found["id"])

    @property
    def _where(self) -> str:
        return f"the schema registry at {without_query(self._options.urls[0])}"

    def _schema(self, found: Any) -> SchemaText:
        """Return the schema in an answer, with its references."""
        text = self._text(found)
        texts: dict[tuple[str, int], str] = {}
        names: dict[tuple[str, int], str] = {}
        self._refer(found, texts, names, ())
        kind = found.get("schemaType") or "AVRO"
        return SchemaText(kind, text, tuple(texts.values()), tuple(names[each] for each in texts))

    def _refer(
        self,
        found: Mapping[str, Any],
        texts: dict[tuple[str, int], str],
        names: dict[tuple[str, int], str],
        within: tuple[Any, ...],
    ) -> None:
        """Add the references of an answer and their names, each after its own references."""
        for each in found.get("references") or ():
            try:
                wanted = str(each["subject"]), int(each["version"])
            except (KeyError, ValueError, TypeError):
                raise RegistryError(f"{self._where} answers with a reference that names no version: {each}") from None
            names.setdefault(wanted, str(each.get("name")))
            if wanted in texts:
                continue
            if wanted in within or len(texts) + len(within) >= MOST_REFERENCES:
                raise RegistryError(f"{wanted[0]} version {wanted[1]} refers to itself, or to too many schemas")
            if wanted not in self._referenced:
                path = f"subjects/{quote(wanted[0], safe='')}/versions/{wanted[1]}{self._form}"
                self._referenced[wanted] = self._get(path, f"subject {wanted[0]} version {wanted[1]}")
            part = self._referenced[wanted]
            text = self._text(part)
            self._refer(part, texts, names, (*within, wanted))
            texts[wanted] = text

    def _text(self, found: Any) -> str:
        text = found.get("schema") if isinstance(found, dict) else None
        if not isinstance(text, str):
            raise RegistryError(f"{self._where} answers without a schema: is it a registry of schemas?")
        return text

    def _get(self, path: str, what: str) -> Any:
        return self._request(path, what, None)

    def _request(self, path: str, what: str, content: Mapping[str, Any] | None) -> Any:
        answer = self._answer(path, content)
        if answer.status == 404:
            raise UnknownSchema(f"{self._where} has no {what}: {_error_message(answer)}")
        if answer.status in (401, 403):
            raise RegistryError(
                f"{self._where} refuses {what} with HTTP status {answer.status}: check "
                "schema.registry.basic.auth.user.info, schema.registry.bearer.auth.token or the user's rights"
            )
        if answer.status in (409, 422):
            raise RegistryError(f"{self._where} does not take {what}: {_error_message(answer)}")
        if answer.status != 200:
            raise RegistryError(f"{self._where} answers with HTTP status {answer.status}: {_error_message(answer)}")
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError):
            raise RegistryError(f"{self._where} answers with no JSON: is it a registry of schemas?") from None

    def _answer(self, path: str, content: Mapping[str, Any] | None) -> HttpResponse:
        """Return the first answer that shows no trouble, else the last answer. Raises RegistryError without any."""
        answer: HttpResponse | None = None
        failure: NetworkException | None = None
        body = None if content is None else json.dumps(content).encode()
        headers = self._headers if content is None else {**self._headers, "Content-Type": CONTENT}
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(PAUSE_S * 2 ** (attempt - 1))
            for url in self._options.urls:
                try:
                    answer = ask(
                        f"{url.rstrip('/')}/{path}", body=body, headers=headers, tls=self._tls, redirects=False
                    )
                except NetworkException as error:
                    failure = error
                    continue
                if answer.status < 500 and answer.status != 429:
                    return answer
        if answer is not None:
            return answer
        raise RegistryError(f"the schema registry does not answer: {failure}; check schema.registry.url")


def subject_name(strategy: str, *, topic: str, record: str, is_key: bool) -> str:
    """Return the subject of a topic's keys or values, as Confluent's serializers name it.

    strategy: topic, record or topic_record; record: the full name of the record
    """
    if strategy == "topic":
        return f"{topic}-{'key' if is_key else 'value'}"
    return record if strategy == "record" else f"{topic}-{record}"


def _request_headers(options: RegistryOptions) -> dict[str, str]:
    headers = {"Accept": ACCEPT}
    if options.user_info is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(options.user_info.encode()).decode()}"
    elif options.token is not None:
        headers["Authorization"] = f"Bearer {options.token}"
    return headers


def _tls_context(options: RegistryOptions) -> ssl.SSLContext | None:
    if options.truststore is None and options.keystore is None:
        return None
    trusted = None
    if options.truststore is not None:
        trusted = read_pem("schema.registry.ssl.truststore.location", options.truststore).decode("latin-1")
    try:
        context = ssl.create_default_context(cadata=trusted)
        if options.keystore is not None:
            read_pem("schema.registry.ssl.keystore.location", options.keystore)
            context.load_cert_chain(options.keystore, password=lambda: "")
    except (ssl.SSLError, ValueError, OSError) as error:
        raise ConfigError(
            f"schema.registry.ssl.…: {error}; a keystore has a certificate and its key, which is not encrypted"
        ) from None
    return context


def _error_message(answer: HttpResponse) -> str:
    """Return the registry's message, in at most 200 characters."""
    try:
        text = json.loads(answer.content).get("message", "")
    except (ValueError, AttributeError, RecursionError):
        text = ""
    return str(text)[:200] or "it gives no reason"
