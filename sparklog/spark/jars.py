"""Delta's jars: five files beside PySpark's own, fetched once and kept in a folder.

`delta_jars` returns their paths. If a jar is missing, it first fetches the jars that ivy.xml lists from Maven Central,
with the Ivy among PySpark's jars. That takes a few seconds, needs no Maven and fetches no transitive dependencies. The
folder is the first of these that applies:

    $SPARKLOG_DELTA_JARS      for machines without access to Maven Central: a folder in an image, or a shared folder
    .cache/delta              in a checkout of sparklog; `make setup` fills it
    ~/.cache/sparklog/delta   otherwise; with $XDG_CACHE_HOME instead of ~/.cache if that is set

Spark's setting `spark.jars.ivySettings` names a mirror of Maven Central. ``python -m sparklog.spark.jars FOLDER
--settings FILE`` fetches the jars before the first session. The names of the jars have versions, so several versions of
sparklog may share a folder.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import click
import pyspark

from sparklog.base.errors import ConfigError

VARIABLE = "SPARKLOG_DELTA_JARS"
IVY_FILE = Path(__file__).with_name("ivy.xml")
FETCHED_WITHIN_S = 600
CHECKOUT = Path(__file__).resolve().parents[2]


def default_folder() -> Path:
    """Return the folder that holds Delta's jars by default."""
    if folder := os.environ.get(VARIABLE):
        return Path(folder).absolute()
    if (CHECKOUT / "pyproject.toml").is_file():
        return CHECKOUT / ".cache" / "delta"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches).absolute() / "sparklog" / "delta"


def delta_jars(folder: Path | None = None, *, settings: str | Path | None = None) -> list[Path]:
    """Return Delta's jars in `folder`, by default `default_folder`; fetch them first if one is missing.

    `settings` is an Ivy settings file, such as one that names a mirror. Raises ConfigError if the jars cannot be
    fetched.
    """
    folder = folder or default_folder()
    jars = [folder / name for name in jar_names()]
    if not all(jar.exists() for jar in jars):
        try:
            _fetch(folder, settings)
        except OSError as error:
            raise ConfigError(_advice(folder, str(error))) from error
        if missing := [jar.name for jar in jars if not jar.exists()]:
            raise ConfigError(_advice(folder, f"no {missing[0]}"))
    return jars


def jar_names() -> list[str]:
    """Return the file names of the jars that ivy.xml lists."""
    dependencies = ElementTree.parse(IVY_FILE).iter("dependency")
    return [f"{dependency.get('name')}-{dependency.get('rev')}.jar" for dependency in dependencies]


def fetch_command(
    folder: Path, *, cache: Path, ivy_file: Path = IVY_FILE, settings: str | Path | None = None
) -> list[str]:
    """Return the command that fetches jars into `folder`; `cache` is Ivy's. Raises ConfigError if Spark has no Ivy."""
    homes = [Path(pyspark.__file__).parent, Path(os.environ.get("SPARK_HOME", "."))]
    ivy = [jar for home in homes for jar in sorted((home / "jars").glob("ivy-*.jar"))]
    if not ivy:
        raise ConfigError("neither PySpark nor SPARK_HOME has jars/ivy-*.jar, which fetches Delta's jars")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    mirror = ["-settings", str(settings)] if settings else []
    return [
        str(java), "-jar", str(ivy[0]), "-warn", *mirror, "-cache", str(cache),
        "-ivy", str(ivy_file), "-retrieve", f"{folder}/[artifact]-[revision].[ext]",
    ]  # fmt: skip


def _fetch(folder: Path, settings: str | Path | None) -> None:
    """Fetch the jars into `folder`.

    Several processes may fetch at once: each fetches into a folder of its own, and moves whole files from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as name:
        fetched = Path(name, "jars")
        command = fetch_command(fetched, cache=Path(name, "ivy"), settings=settings)
        try:
            done = subprocess.run(
                command,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=FETCHED_WITHIN_S,
            )
        except FileNotFoundError:
            where = f" at {command[0]}" if os.environ.get("JAVA_HOME") else ""
            raise ConfigError(f"Java is not found{where}: install a JDK 17 or set JAVA_HOME") from None
        except subprocess.TimeoutExpired:
            raise ConfigError(_advice(folder, f"Ivy did not end within {FETCHED_WITHIN_S} s")) from None
        if done.returncode:
            said = [text for line in done.stdout.splitlines() if (text := line.strip(": \t")) and "VERBOSE" not in text]
            raise ConfigError(_advice(folder, said[-1] if said else f"Ivy ended with status {done.returncode}"))
        for jar in fetched.glob("*.jar"):
            jar.replace(folder / jar.name)


def _advice(folder: Path, why: str) -> str:
    return (
        f"Delta's jars are not in {folder} and cannot be fetched: {why}; name a mirror of Maven Central with "
        f"spark.jars.ivySettings, or a folder that has the jars with {VARIABLE}"
    )


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
@click.option("--settings", type=click.Path(exists=True, path_type=Path), help="Ivy settings, such as a mirror.")
def main(folder: Path | None, settings: Path | None) -> None:
    """Fetch the jars that Spark needs for Delta tables into FOLDER, by default where sessions look for them."""
    try:
        for jar in delta_jars(folder, settings=settings):
            click.echo(jar)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
