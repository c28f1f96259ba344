"""The client of jobs: logs as brokers have them, and segments put in place of others."""
