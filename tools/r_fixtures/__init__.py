"""What R says of small data sets, as numbers for the tests: `python -m tools.r_fixtures`."""
