"""The replicas on this broker: roles, in-sync replicas, high watermarks, and copying from leaders."""
