"""The checks of a simulated cluster: the history of its operations, and the invariants of that history."""
