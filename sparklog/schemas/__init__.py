"""Keys and values with schemas: Avro and JSON to Arrow columns, frames with a schema's id, a registry's client."""
