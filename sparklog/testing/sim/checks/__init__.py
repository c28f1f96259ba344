"""The checks of a simulated cluster: the history of its operations, and what must hold of it."""
