"""The tables of APIs agree with each other, with the modules, with Kafka, and with the generated page."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from sparklog.broker.api import Api
from sparklog.broker.apis import APIS, PEER_APIS
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.messages import versions_of
from sparklog.server.kafka.supported_apis import GAPS, LOWER, kafka_apis, page
from sparklog.server.kafka.translation import Translation

ROOT = Path(__file__).parents[3]
NOT_AN_API = {"__init__"}


def modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py")} - NOT_AN_API


def entries(package: str, kind: type) -> set[object]:
    """All module variables of a package that could be entries of its table."""
    found = [import_module(f"{package}.{name}") for name in modules(Path(import_module(package).__path__[0]))]
    return {value for module in found for value in vars(module).values() if isinstance(value, kind)}


def test_the_page_of_supported_apis_is_what_would_be_generated() -> None:
    written = (ROOT / "docs" / "reference" / "kafka-apis.md").read_text()
    assert written == page(), "run: python -m sparklog.server.kafka.supported_apis > docs/reference/kafka-apis.md"


def test_every_api_of_kafka_is_either_served_or_its_absence_explained() -> None:
    served = {api.name for api in APIS if api.key is not None}
    assert served | GAPS.keys() == kafka_apis().keys()
    assert not served & GAPS.keys()


def test_apis_have_kafkas_names_and_numbers_and_only_versions_that_kafka_has() -> None:
    for api in APIS:
        if api.key is not None:
            assert kafka_apis()[api.name] == api.key
            first, last = versions_of(api.key)
            assert api.versions[0] == first
            assert api.versions[1] == last or (api.name in LOWER and api.versions[1] < last)


def test_what_has_a_number_is_translated_and_nothing_else() -> None:
    assert {translation.api for translation in TRANSLATIONS} == {api for api in APIS if api.key is not None}
    assert len(TRANSLATIONS) == len({translation.api.key for translation in TRANSLATIONS})


def test_every_api_that_a_file_defines_is_in_its_table() -> None:
    assert entries("sparklog.broker.apis", Api) == {*APIS, *PEER_APIS.values()}
    assert entries("sparklog.server.kafka.apis", Translation) == set(TRANSLATIONS)
