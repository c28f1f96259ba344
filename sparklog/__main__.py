"""``python -m sparklog`` is `sparklog`."""

from sparklog.cli import main

main()
