"""Audits: comparison of the store, the brokers, and the bytes of every replica."""
