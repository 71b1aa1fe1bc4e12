"""The one step that PDFP and FPDFP share."""

from __future__ import annotations

from fpdfp._typing import Array
from fpdfp.methods._dual_step import primal_dual_step
from fpdfp.problem import Model


def pdfp_step(model: Model, x: Array, v: Array, gradient: Array, gamma: float, lam: float) -> tuple[Array, Array]:
    """Return x⁺ and v⁺ of a primal-dual fixed point step.

        x½ = x − γ ∇f(x)
        v⁺ = prox_{(λ/γ) g*}( (λ/γ) B x½ + (I − λBBᵀ) v )
        x⁺ = x½ − γ Bᵀv⁺

    ``gradient`` may have a leading client axis; x and v are shared, so Bᵀv is computed once for all, and
    (λ/γ)B x½ − λBBᵀv takes one product with B: (λ/γ)B(x½ − γBᵀv).
    """
    return primal_dual_step(model, x - gamma * gradient, v, gamma, lam / gamma)
