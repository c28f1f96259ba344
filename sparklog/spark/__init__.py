"""Topics as tables: the Spark data source `sparklog`, batch and streaming, reading and writing.

    options ─▶ source ─▶ offsets (where a scan begins and ends) ─▶ plan (which bytes, how many tasks) ─▶ read | stream
                     └─▶ write

`plan` and `options` are pure. Tasks that read segments from files load Arrow and the record kernels and nothing else;
only `broker` and `write` load the gRPC client.
"""
