"""Topics as tables: the Spark data source `sparklog`, batch and streaming, reading and writing.

    source/      the data source, as drawn below
    history/     archives in Delta tables, and reads of archive and log as one
    compaction/  offsets/  audit/    what jobs do in tasks
    beside them  the session and its jars, and what a broker or a folder says of topics

    options ─▶ source ─▶ offsets (where a scan begins and ends) ─▶ plan (which bytes, how many tasks) ─▶ read | stream
                     └─▶ write

`plan` and `options` are pure. Tasks that read segments from files load Arrow and the record kernels and nothing else;
only `broker` and `write` load the gRPC client.
"""
