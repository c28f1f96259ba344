"""Upkeep on Spark: jobs that plan, apply and report. One file for each job; `job` is what they have in common.

    plan      a DataFrame, one row for each piece of work, with the reason for it; all that --dry-run does
    apply     does the work, and may be done again after any crash; a DataFrame of what became of each piece
    report    those rows, appended to a Delta table

Run as `sparklog jobs run NAME`, `spark-submit jobs/NAME.py`, or on a schedule with `sparklog jobs serve`.
`table` has the jobs by name.
"""
