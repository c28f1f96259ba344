"""Whole clusters on a simulated clock, disk and network: `python -m sparklog.testing.sim` runs them."""
