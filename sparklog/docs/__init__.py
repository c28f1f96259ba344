"""Generated files: the reference pages, alerts and dashboard, by ``python -m sparklog.docs`` or ``make reference``.

    pages.py            every generated file, with the function that generates it
    markdown.py         tables and text
    configuration.py    keys of brokers, topics and job servers
    commands.py         every command's --help
    python_api.py       public classes of the Python client, their options, errors
    grpc_api.py         services and messages of proto/, with their comments
    spark_source.py     options and columns of format("sparklog")
    metrics.py          Prometheus metrics of brokers and job servers
    alerts.py           alerting rules for Prometheus
    dashboard.py        dashboard for Grafana

A test generates each file and compares it with the one in the checkout. Generation needs a checkout, with `proto/` and
the development tools.
"""
