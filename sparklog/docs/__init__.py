"""The reference pages of the documentation, written from the code: ``python -m sparklog.docs``, or ``make reference``.

    pages.py            every generated file, with the function that writes it
    markdown.py         tables and text
    configuration.py    keys of brokers, topics and job servers
    commands.py         every command's --help
    python_api.py       public classes of the Python client, their options, errors
    grpc_api.py         services and messages of proto/, with their comments
    spark_source.py     options and columns of format("sparklog")
    metrics.py          what brokers and job servers give to Prometheus

A test compares each file with what would be written now. The pages are made in a checkout: they need `proto/` and the
development tools.
"""
