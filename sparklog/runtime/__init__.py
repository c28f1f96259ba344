"""What the event loop waits for: conditions with a time limit, and work that comes round again."""
