"""Write tests/data/releases/VERSION: a data directory, and what is in it.

    PYTHONPATH=tests python -m support.runs.release_data VERSION [--without acls] [--without transactions]

The broker is the one of the checkout where this runs; with PYTHONPATH=CHECKOUT/tests it may be one of another version.
tests/package/test_releases.py opens each of these directories with the present code. At each release, `unreleased` is
written again and renamed to the version.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from support import ROOT
from support.processes import contents
from support.processes.broker import BrokerProcess

RELEASES = ROOT / "tests" / "data" / "releases"
NOT_DATA = shutil.ignore_patterns(".lock", ".reserve")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--without", action="append", default=[], choices=["acls", "transactions"])
    given = parser.parse_args()
    has_acls = "acls" not in given.without
    has_transactions = "transactions" not in given.without
    settings = [*contents.FEW, *(contents.AUTHORIZED if has_acls else ())]
    settings += [contents.FEW_TRANSACTIONS] if has_transactions else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with BrokerProcess(folder, *settings) as broker:
            contents.fill(broker.kafka, has_acls=has_acls, has_transactions=has_transactions)
            found = contents.read(broker.kafka, has_acls=has_acls)
        target = RELEASES / given.version
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder / "data", target / "data", ignore=NOT_DATA)
        (target / "contents.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
