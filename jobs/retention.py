"""spark-submit jobs/retention.py [OPTION]…    options: see sparklog jobs run retention --help"""

from sparklog.cli.jobs import submit

submit("run", "retention")
