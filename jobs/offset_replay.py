"""spark-submit jobs/offset_replay.py [OPTION]…    the options are those of: sparklog jobs run offset_replay --help"""

from sparklog.cli.jobs import submit

submit("run", "offset_replay")
