"""Delta's jars: five files beside PySpark's own, fetched once and kept in a folder.

``python -m sparklog.spark.jars FOLDER`` fetches what conf/ivy.xml lists, with the Ivy among PySpark's jars: no Maven,
nothing transitive, a few seconds. ``--settings FILE`` names an Ivy settings file, such as one for a mirror.
`find_jars` looks where `make setup` puts them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import click
import pyspark

from sparklog.base.errors import ConfigError

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / ".cache" / "delta"
IVY_FILE = PROJECT / "conf" / "ivy.xml"
NEEDED = ("delta-spark", "delta-storage", "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")


def find_jars(folder: Path = FOLDER) -> list[Path]:
    """Delta's jars in `folder`, one of each. Raises ConfigError where one is missing."""
    found = []
    for name in NEEDED:
        jars = sorted(folder.glob(f"{name}[-_][0-9]*.jar"))
        if not jars:
            raise ConfigError(
                f"no {name} jar in {folder}: run `make setup`, or `python -m sparklog.spark.jars {folder}`"
            )
        found.append(jars[-1])
    return found


def fetch_command(folder: Path, *, ivy_file: Path = IVY_FILE, settings: Path | None = None) -> list[str]:
    """The command that puts the jars into `folder`; Ivy's own cache goes beside it."""
    ivy = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))[-1]
    mirror = ["-settings", str(settings)] if settings else []
    return [
        "java", "-jar", str(ivy), "-error", *mirror, "-cache", str(folder.parent / "ivy"),
        "-ivy", str(ivy_file), "-retrieve", f"{folder}/[artifact]-[revision].[ext]",
    ]  # fmt: skip


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER)
@click.option("--settings", type=click.Path(exists=True, path_type=Path), help="Ivy settings, such as a mirror.")
def main(folder: Path, settings: Path | None) -> None:
    """Fetch the jars that Spark needs for Delta tables into FOLDER."""
    subprocess.run(fetch_command(folder, settings=settings), check=True)
    for jar in find_jars(folder):
        click.echo(jar)


if __name__ == "__main__":
    main()
