"""The client of sinks: batches of several writers, each batch written once."""
