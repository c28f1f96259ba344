"""The clients of a simulated cluster. They record their operations and the answers."""
