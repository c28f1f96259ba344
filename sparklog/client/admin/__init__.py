"""The admin client: topics, their configuration, groups, and what the cluster looks like."""
