"""The job for spark-submit, with the options of: sparklog jobs run compaction --help"""

from sparklog.cli.jobs import submit

submit("run", "compaction")
