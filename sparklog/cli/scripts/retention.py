"""The job for spark-submit, with the options of: sparklog jobs run retention --help"""

from sparklog.cli.jobs import submit

submit("run", "retention")
