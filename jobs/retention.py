"""spark-submit jobs/retention.py [OPTION]…    the options are those of: sparklog jobs run retention --help"""

from sparklog.cli.jobs import submit

submit("run", "retention")
