"""The data source: options, the plan of a scan, and what its tasks read and write."""
