"""Transaction coordinators in tests."""
