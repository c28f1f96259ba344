"""Searches for the requests that cost a broker most per byte: `python -m support.fuzzing.search --help`."""
