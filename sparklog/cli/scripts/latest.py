"""The job for spark-submit, with the options of: sparklog jobs run latest --help"""

from sparklog.cli.jobs import submit

submit("run", "latest")
