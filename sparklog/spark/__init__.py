"""Topics as tables: the Spark data source `sparklog`, batch and streaming, reading and writing.

    source/      the data source, as drawn below
    history/     archives in Delta tables, and reads of archive and log as one
    compaction/  offsets/  audit/    the work of jobs in Spark tasks
    beside them  the session and its jars, and lookups of topics at a broker or in a folder

    options ─▶ source ─▶ offsets (where a scan begins and ends) ─▶ plan (which bytes, how many tasks) ─▶ read | stream
                     └─▶ write

`plan` and `options` are pure. Tasks that read segments from files load only Arrow and the record kernels; only `broker`
and `write` load the gRPC client.
"""
