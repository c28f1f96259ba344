"""The admin client: topics, their configuration, groups and the cluster."""
