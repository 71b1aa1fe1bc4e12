"""Experiments that are declared in a file: checked whole, then run, swept and compared."""
