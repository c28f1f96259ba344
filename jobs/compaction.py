"""spark-submit jobs/compaction.py [OPTION]…    options: see sparklog jobs run compaction --help"""

from sparklog.cli.jobs import submit

submit("run", "compaction")
