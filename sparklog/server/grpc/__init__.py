"""The gRPC listener: the services of `proto/sparklog/v1`, and calls between brokers."""
