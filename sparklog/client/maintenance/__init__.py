"""The maintenance client for jobs: descriptions of brokers' logs, and replacement of segments."""
