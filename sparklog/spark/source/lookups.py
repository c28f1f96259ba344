"""Choice of the lookup for a read: files for `path`, the broker for anything else."""

from __future__ import annotations

from sparklog.spark.folders import FolderLookup
from sparklog.spark.source.offsets import Lookup
from sparklog.spark.source.options import ReadOptions


def open_lookup(options: ReadOptions) -> Lookup:
    """Open the lookup that the options ask for; the caller closes it."""
    if options.path is not None:
        return FolderLookup.open(options.path)
    from sparklog.spark.broker import BrokerLookup  # loads the gRPC client, which tasks that read files do not need

    assert options.broker is not None  # parse_read_options: a path or a broker
    return BrokerLookup(options.broker, options.read_mode)
