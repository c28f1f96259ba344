"""The gRPC interface, generated from proto/ by `make proto`."""
