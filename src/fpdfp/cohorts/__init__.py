"""Cohorts: the clients of a study, who are asked questions and answer in sums."""
