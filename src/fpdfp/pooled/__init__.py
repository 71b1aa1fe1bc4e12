"""Solvers for all data in one place, with a certificate: :func:`fpdfp.minimize`."""
