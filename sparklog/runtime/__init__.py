"""Tools for the event loop: operations that wait, scheduled work, serial execution and state machines."""
