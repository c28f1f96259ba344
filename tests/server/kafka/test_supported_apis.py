"""The tables of APIs agree with each other, with the files there are, with Kafka, and with what is written of them."""

from __future__ import annotations

import re
from pathlib import Path

from sparklog import broker, server
from sparklog.broker.apis import APIS, PEER_APIS
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.server.kafka.messages import versions_of
from sparklog.server.kafka.supported_apis import GAPS, LOWER, kafka_apis, page

ROOT = Path(__file__).parents[3]
NOT_AN_API = {"__init__"}


def modules(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py")} - NOT_AN_API


def has_a_table_entry(path: Path, name: str) -> bool:
    return re.search(rf"^{name}(: .*)? = ", path.read_text(), re.MULTILINE) is not None


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


def test_every_file_of_an_api_is_in_its_table() -> None:
    for folder, name, table in (
        (Path(broker.__path__[0], "apis"), "API", [api.handle for api in (*APIS, *PEER_APIS.values())]),
        (Path(server.__path__[0], "kafka", "apis"), "TRANSLATION", [translation.serve for translation in TRANSLATIONS]),
    ):
        files = {stem for stem in modules(folder) if has_a_table_entry(folder / f"{stem}.py", name)}
        assert files == {function.__module__.rpartition(".")[2] for function in table}
