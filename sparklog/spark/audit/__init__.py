"""Audits: what brokers, the store and the bytes of every replica say, and where they differ."""
