"""Maintenance jobs on Spark: each plans, applies and reports. One file for each job; `job` has what they share.

    plan      returns a DataFrame with one row for each piece of work and its reason; --dry-run stops here
    apply     does the work, and can be repeated after any crash; returns a DataFrame with the outcome of each piece
    report    appends these rows to a Delta table

Run a job with `sparklog jobs run NAME`, `spark-submit jobs/NAME.py`, or on a schedule with `sparklog jobs serve`.
`table` lists the jobs by name.
"""
