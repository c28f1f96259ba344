"""spark-submit jobs/latest.py [OPTION]…    options: see sparklog jobs run latest --help"""

from sparklog.cli.jobs import submit

submit("run", "latest")
