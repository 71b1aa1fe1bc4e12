"""The inner solver: a quadratic plus the penalty, without data.

    min_u  q(u) + g(Bu),     q(u) = ‖u − y‖²/2t   or   ⟨s, u − c⟩ + ½ (u − c)ᵀH(u − c)

``statement.py`` has the values that describe what is asked and what was found. ``solve.py`` has the entry,
``minimise``: it chooses by structure. Each algorithm has one file.

==================  ============================================================================
``dual.py``         accelerated steps in the dual, for any g∘B and many clients at once
``newton.py``       semismooth Newton steps for augmented Lagrangians, where B is a small matrix
``blocks.py``       coordinate descent and Newton steps: B = I and a sum of norms of blocks
``columns.py``      coordinate descent for an l1 norm, with the Hessian of sparse columns
``accelerated.py``  accelerated proximal gradient steps for an l1 norm of a sparse map
==================  ============================================================================
"""
