"""The content of `__transaction_state`: the bytes of keys and values, as values and as text."""
