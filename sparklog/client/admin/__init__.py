"""The admin client: topics, their configuration, groups, transactions and the cluster."""
