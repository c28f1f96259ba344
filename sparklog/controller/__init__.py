"""The cluster's controller: an elected broker that elects the leaders of partitions and informs all brokers."""
