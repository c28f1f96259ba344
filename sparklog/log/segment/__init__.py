"""One segment of a log: its files, indexes, writer, and how they are scanned."""
