"""The job for spark-submit, with the options of: sparklog jobs run archive --help"""

from sparklog.cli.jobs import submit

submit("run", "archive")
