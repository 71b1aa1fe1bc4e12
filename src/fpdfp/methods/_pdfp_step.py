"""The one step that PDFP and FPDFP share."""

from __future__ import annotations

from fpdfp._typing import Array
from fpdfp.problem import Model


def pdfp_step(model: Model, x: Array, v: Array, gradient: Array, gamma: float, lam: float) -> tuple[Array, Array]:
    """Return x⁺ and v⁺ of a primal-dual fixed point step.

        x½ = x − γ ∇f(x)
        v⁺ = prox_{(λ/γ) g*}( (λ/γ) B x½ + (I − λBBᵀ) v )
        x⁺ = x½ − γ Bᵀv⁺

    ``gradient`` may have a leading client axis; x and v are shared, so Bᵀv is computed once for all, and
    (λ/γ)B x½ − λBBᵀv takes one product with B: (λ/γ)B(x½ − γBᵀv).
    """
    half = x - gamma * gradient
    sigma = lam / gamma
    v_new = model.penalty.conjugate_prox(sigma * model.linop.apply(half - gamma * model.linop.adjoint(v)) + v, sigma)
    x_new = half - gamma * model.linop.adjoint(v_new)
    return x_new, v_new
