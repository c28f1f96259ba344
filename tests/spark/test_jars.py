"""Delta's jars: their names, their folders, and the error if they cannot be fetched."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from sparklog.base.errors import ConfigError
from sparklog.spark import jars
from sparklog.spark.jars import default_folder, delta_jars, jar_names
from support import CACHE, ROOT

NOWHERE = """
<ivysettings>
  <settings defaultResolver="nowhere"/>
  <resolvers><ibiblio name="nowhere" m2compatible="true" root="{root}"/></resolvers>
</ivysettings>
"""


def pinned(package: str) -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extra = tomllib.load(file)["project"]["optional-dependencies"]["spark"]
    [found] = [text.removeprefix(f"{package}==") for text in extra if text.startswith(f"{package}==")]
    return found


def test_they_are_of_the_versions_that_the_extra_pins():
    spark, delta = pinned("pyspark").rpartition(".")[0], pinned("delta-spark")
    assert f"delta-spark_{spark}_2.13-{delta}.jar" in jar_names()
    assert all(name.endswith(f"-{delta}.jar") for name in jar_names())
    assert (version("pyspark"), version("delta-spark")) == (pinned("pyspark"), delta)


def test_a_checkout_keeps_them_in_its_cache(monkeypatch):
    monkeypatch.delenv(jars.VARIABLE, raising=False)
    assert default_folder() == CACHE / "delta"


def test_an_installation_keeps_them_in_the_users_cache_unless_a_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(jars, "CHECKOUT", tmp_path)
    monkeypatch.delenv(jars.VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/alice")
    assert default_folder() == Path("/home/alice/.cache/sparklog/delta")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert default_folder() == Path("/scratch/sparklog/delta")
    monkeypatch.setenv(jars.VARIABLE, "/opt/jars")
    assert default_folder() == Path("/opt/jars")


def test_what_is_there_is_not_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # which has no Java
    for name in jar_names():
        (tmp_path / name).touch()
    assert [jar.name for jar in delta_jars(tmp_path)] == jar_names()
    (tmp_path / jar_names()[0]).unlink()
    with pytest.raises(ConfigError, match=r"^Java is not found at .*/bin/java: install a JDK 17 or set JAVA_HOME$"):
        delta_jars(tmp_path)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^Java is not found: install a JDK 17 or set JAVA_HOME$"):
        delta_jars(tmp_path)


@pytest.mark.jvm
def test_where_they_cannot_be_fetched_the_error_says_what_else_there_is(tmp_path):
    settings = tmp_path / "settings.xml"
    settings.write_text(NOWHERE.format(root=(tmp_path / "nowhere").as_uri()))
    with pytest.raises(ConfigError) as refused:
        delta_jars(tmp_path / "jars", settings=settings)
    assert "not found" in str(refused.value)
    assert "spark.jars.ivySettings" in str(refused.value)
    assert "SPARKLOG_DELTA_JARS" in str(refused.value)
    assert not list((tmp_path / "jars").iterdir())
