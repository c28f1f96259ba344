"""Schemas of keys and values: Avro to Arrow columns, the frame with a schema's id, the client of a registry."""
