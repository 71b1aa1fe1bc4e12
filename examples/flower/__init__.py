"""A Flower federation of real processes on one machine, for demonstrations and tests."""
