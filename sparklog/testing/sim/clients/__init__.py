"""The clients of a simulated cluster: what they do, and what they were told."""
