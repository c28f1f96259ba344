"""Keys and values with schemas: Avro, Protobuf and JSON to Arrow columns, frames with ids, a registry's client."""
