"""Archives of topics in Delta tables, and reads of archive and log as one."""
