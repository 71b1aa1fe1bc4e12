"""``python -m fpdfp``: the command line."""

from fpdfp.cli import main

main()
