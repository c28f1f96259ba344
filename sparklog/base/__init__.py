"""What every layer shares: identifiers, errors, clock, file system and configuration."""
