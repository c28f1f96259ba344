"""One segment of a log: its files, indexes, writer and scans."""
