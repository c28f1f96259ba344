"""sparklog: a log platform for people whose data pipelines run on Spark."""

import os

from sparklog.base.lazy import lazy

__version__ = "0.2.0"

__all__ = ["__version__", "arrow", "client", "jobs", "spark", "testing"]

# Names alone: who asks for the version, as a broker does, has no use for clients.
__getattr__, __dir__ = lazy(
    __name__, {name: f"sparklog.{name}" for name in ("arrow", "client", "jobs", "spark", "testing")}, __all__
)

# gRPC prepares every fork for the child's use of gRPC; while calls are under way, that crashes one child in ten. Those
# that go on to another program, as PySpark's JVM does, need no such thing. To be said before gRPC starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
