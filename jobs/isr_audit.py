"""spark-submit jobs/isr_audit.py [OPTION]…    options: see sparklog jobs run isr_audit --help"""

from sparklog.cli.jobs import submit

submit("run", "isr_audit")
