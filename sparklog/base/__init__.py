"""Code shared by all layers: identifiers, errors, clock, file system and configuration."""
