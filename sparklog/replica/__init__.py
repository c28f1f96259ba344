"""The replicas on this broker: their roles, what is committed, and copying from leaders."""
