"""sparklog: a log platform for people whose data pipelines run on Spark."""

import os

__version__ = "0.1.0"

# gRPC prepares every fork for the child's use of gRPC; while calls are under way, that crashes one child in ten. Those
# that go on to another program, as PySpark's JVM does, need no such thing. To be said before gRPC starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
