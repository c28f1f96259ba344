"""spark-submit jobs/offset_replay.py [OPTION]…    options: see sparklog jobs run offset_replay --help"""

from sparklog.cli.jobs import submit

submit("run", "offset_replay")
