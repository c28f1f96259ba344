"""The job for spark-submit, with the options of: sparklog jobs run isr_audit --help"""

from sparklog.cli.jobs import submit

submit("run", "isr_audit")
