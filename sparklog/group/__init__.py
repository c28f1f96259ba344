"""Consumer groups: who is in them, what they read, and how far they have come."""
