"""The job for spark-submit, with the options of: sparklog jobs run offset_replay --help"""

from sparklog.cli.jobs import submit

submit("run", "offset_replay")
