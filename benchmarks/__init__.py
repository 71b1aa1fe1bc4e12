"""Benchmarks: one command each, ours beside the peers, a table and a last line of JSON."""
