"""spark-submit jobs/archive.py [OPTION]…    options: see sparklog jobs run archive --help"""

from sparklog.cli.jobs import submit

submit("run", "archive")
