"""spark-submit jobs/compaction.py [OPTION]…    the options are those of: sparklog jobs run compaction --help"""

from sparklog.cli.jobs import submit

submit("run", "compaction")
