"""What a solver with all rows in one place wants to know of each row, in one go."""

from __future__ import annotations

import math
from typing import Any

from fpdfp._kernels.jit import serial

LOGISTIC = 0
SQUARED = 1


@serial
def look_at(kind: Any, forms: Any, y: Any, weights: Any, losses: Any, slopes: Any, curvatures: Any) -> None:
    """Write φ of each row, and its first and second derivatives times the weight of the row."""
    for j in range(forms.size):
        if kind == LOGISTIC:
            margin = y[j] * forms[j]
            small = math.exp(-abs(margin))
            losses[j] = max(-margin, 0.0) + math.log1p(small)
            share = 1.0 / (1.0 + small)
            # the probability of the other class, without cancellation
            other = small * share if margin > 0 else share
            slopes[j] = -weights[j] * y[j] * other
            curvatures[j] = weights[j] * small * share * share
        else:
            away = forms[j] - y[j]
            losses[j] = 0.5 * away * away
            slopes[j] = weights[j] * away
            curvatures[j] = weights[j]
