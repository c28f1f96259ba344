"""Keys and values with schemas: Avro, Protobuf and JSON to and from Arrow, frames with ids, the registry's client."""
