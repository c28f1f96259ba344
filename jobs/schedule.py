"""spark-submit jobs/schedule.py [OPTION]…    options: see sparklog jobs serve --help"""

from sparklog.cli.jobs import submit

submit("serve")
