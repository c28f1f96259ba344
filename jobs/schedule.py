"""spark-submit jobs/schedule.py [OPTION]…    the options are those of: sparklog jobs serve --help"""

from sparklog.cli.jobs import submit

submit("serve")
