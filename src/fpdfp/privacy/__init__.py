"""Sums over sites that no one can take apart, and differential privacy with a budget that ends.

===================  ============================================================================
``fixed_point.py``   numbers as integers, so that sums are exact and masks leave no trace
``masks.py``         a fixed membership, keys of pairs of sites, and masks that cancel in the sum
``journal.py``       what a site has written down before a reply leaves, intact after any crash
``noise.py``         exact draws of the discrete Gaussian distribution from a keyed stream
``accounting.py``    ε and δ from one number, μ, the squares of which add up
``ledger.py``        what a site's data have been spent on
``releases.py``      sums over rows with noise, and by how much one row changes them
``clients.py``       privacy for whole clients, in simulations: clipped replies, noise, subsampling
``fit.py``           models from noisy sums, and their intervals
===================  ============================================================================
"""
