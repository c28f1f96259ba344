"""The schedule for spark-submit, with the options of: sparklog jobs serve --help"""

from sparklog.cli.jobs import submit

submit("serve")
