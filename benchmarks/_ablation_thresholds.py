"""The numbers that steer what the solver does: which are swept, and how, and why the others are not.

Each entry is for itself: where a number goes, its line goes. Every number at the top of a file of ``STEERING`` has an
entry (tested). One that is not swept says why, beginning with one of ``REASONS``.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from unittest import mock

Change = Callable[[Any, float], Any]


def scaled(value: Any, factor: float) -> Any:
    """A number times a factor; whole ones stay whole, and some numbers are changed together."""
    if isinstance(value, tuple):
        return tuple(scaled(one, factor) for one in value)
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


def below_one(value: float, factor: float) -> float:
    """A part of 1, its distance to 1 times a factor."""
    return 1.0 - (1.0 - value) * factor


def above_one(value: float, factor: float) -> float:
    """A factor of at least 1, its distance to 1 times another."""
    return 1.0 + (value - 1.0) * factor


def exponent(value: Any, factor: float) -> Any:
    """The rounds of a well conditioned problem with another exponent of the digits: 1.0 or 2.0 for 1.4."""

    def floor(self: Any) -> float:
        return math.sqrt(self.n_clients / self.clients_per_round) * math.pow(self.digits, 1.4 * math.sqrt(factor))

    return property(floor)


def times(value: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """A function whose result, or each number of it, is multiplied."""

    def changed(*arguments: Any) -> Any:
        result = value(*arguments)
        return tuple(one * factor for one in result) if isinstance(result, tuple) else result * factor

    return changed


class Threshold(NamedTuple):
    """A number.

    Attributes
    ----------
    steers
        What it does.
    change
        How it is made another; None where it is not swept.
    why
        Why it is not swept, or need not be.
    also
        Other modules that have it under the same name.
    without
        The factor with which it does nothing, where there is one: then it could go.
    """

    steers: str
    change: Change | None = scaled
    why: str = ""
    also: tuple[str, ...] = ()
    without: float | None = None

    def patches(self, name: str, factor: float) -> Iterable[Any]:
        """Patches within which it is another."""
        file, _, attribute = name.rpartition(":")
        for one in (file, *self.also):
            package, _, inside = one.partition(".")
            owner = pkgutil.resolve_name(f"fpdfp.{package.replace('/', '.')}:{inside}")
            assert self.change is not None
            yield mock.patch.object(owner, attribute, self.change(getattr(owner, attribute), factor))

    def value(self, name: str) -> str:
        """Its present value, as text."""
        file, _, attribute = name.rpartition(":")
        package, _, inside = file.partition(".")
        try:
            found = getattr(pkgutil.resolve_name(f"fpdfp.{package.replace('/', '.')}:{inside}"), attribute)
        except (AttributeError, ImportError):
            return "gone"
        if isinstance(found, float):
            return f"{found:.4g}"
        return f"{found:,}" if isinstance(found, int) else f"{found}" if type(found) is tuple else "in a function"


def fixed(steers: str, why: str) -> Threshold:
    """A number that is not swept."""
    return Threshold(steers, None, why)


#: Files whose numbers steer what a run does.
STEERING = (
    "engines/choice", "engines/finish", "engines/looks", "engines/prepare", "engines/stopping",
    "engines/working_set", "methods/_preconditioned", "methods/shifted", "precondition/agreement",
    "precondition/coordinates", "precondition/cost", "precondition/exchange", "precondition/partial",
    "precondition/quantized",
)  # fmt: skip
#: How the reason of a number that is not swept begins; open means neither swept nor derived.
REASONS = ("derived", "measured", "limit", "documented", "needed", "open")
MEMORY = "derived: bounds memory, and changes no message"

#: By file and name.
THRESHOLDS: dict[str, Threshold] = {
    "precondition/cost:LEVELS": Threshold("levels of second moments that are considered"),
    "precondition/cost:CLIENTS": fixed(
        "numbers of clients that are considered", "derived: a grid in steps of about 2, over which a minimum is taken"
    ),
    "precondition/cost:MOST": Threshold("the most simulated rounds"),
    "precondition/cost.Circumstances:floor": Threshold(
        "exponent of digits in the rounds of a perfect problem", exponent
    ),
    "precondition/cost:noise": Threshold("the error that levels leave, in predicted rounds", times),
    "precondition/cost:once": Threshold("predicted bits of second moments", times),
    "precondition/cost:TYPICAL": fixed(
        "network of prefer='time'", "documented: a definition, only used with that option"
    ),
    "precondition/quantized:SLOPE_LEVELS": Threshold("levels of gradients that go with moments"),
    "precondition/quantized:FLOORS": Threshold("multiples of the noise that eigenvalues are raised to"),
    "precondition/quantized:STRAINED": Threshold("strain at which clients are asked for exact moments"),
    "precondition/quantized:FEW": Threshold(
        "features up to which all moments are asked for", also=("precondition/agreement",)
    ),
    "precondition/quantized:UNSEEN": Threshold(
        "what runs without whitening cost beyond the prediction", above_one, without=0
    ),
    "precondition/quantized:ACCURACY": fixed("accuracy where none is given", "documented: the default of `accuracy`"),
    "precondition/quantized:UNEVEN": Threshold("spread of sizes from which noise is relative to each feature"),
    "precondition/quantized:ROOT_STEP": Threshold("step of the announced root"),
    "precondition/partial:RANK": Threshold("directions of a sketch"),
    "precondition/partial:LEVELS": Threshold("levels of a sketch"),
    "precondition/partial:CLIENTS": Threshold("the fewest clients that send a sketch"),
    "precondition/partial:ROWS": Threshold("rows that these have together"),
    "precondition/partial:STEEPEST": Threshold("numbers of steep directions that are considered"),
    "precondition/partial:ACTIVE": Threshold("features on which rounds are predicted"),
    "precondition/coordinates:LEFT": Threshold("what rounding leaves of a steep direction"),
    "precondition/coordinates:HELPS": Threshold("spread of frequencies beside that without a filter"),
    "precondition/agreement:MOMENTS": fixed(
        "features up to which prefer='rounds' asks for exact moments", "documented: in `prefer`; not used otherwise"
    ),
    "precondition/partial:ABOVE": fixed(
        "mean of the powers of two above numbers, relative to them", "derived: 1/ln 2, for numbers of any size"
    ),
    "precondition/quantized:LARGEST_POWER": fixed("range of sizes", "derived: within the exponents of float32, 2^±126"),
    "precondition/exchange:MOST_LEVELS": fixed(
        "the most levels that a site accepts", "derived: 16 bits a number, where float32 is as short"
    ),
    "precondition/exchange:LARGEST_POWER": fixed(
        "range of fourth powers of bounds", "derived: within the exponents of float32, 2^±126"
    ),
    "engines/working_set:FEWEST": Threshold("features from which a run begins with some"),
    "engines/working_set:MOST": Threshold("the most features of a first guess"),
    "engines/working_set:FIRST": Threshold("relative gap of the second guess"),
    "engines/working_set:LOOSE": Threshold("relative gap of the last guess"),
    "engines/working_set:NEAR": Threshold(
        "slope beside the weight from which features are added to a guess", below_one
    ),
    "engines/working_set:TIGHTER": Threshold("tolerance of the few where that of all is missed"),
    "engines/working_set:TIGHTEST": fixed(
        "part of the tolerance below which a run goes on with all", "limit: a tolerance is not halved forever"
    ),
    "engines/working_set:WORTH": Threshold("part of the features up to which a run goes on with some"),
    "engines/working_set:RARE": fixed(
        "clients for each that takes part, from which nothing is restricted",
        "open: no problem of the sweep has more than 100 clients",
    ),
    "engines/working_set:LEVELS": Threshold("levels of slopes that guesses rest on"),
    "engines/working_set:POINT_LEVELS": Threshold("levels of the point that slopes are taken at"),
    "engines/working_set:FINE": Threshold("levels of slopes near their weights"),
    "engines/working_set:ROUNDING": fixed(
        "rounding of a gradient beside the weight", "derived: about 1e4 roundings of float32, 1e7 of float64"
    ),
    "engines/finish:POINT_LEVELS": fixed(
        "levels of the point at which clients give second derivatives", "open: its sweep was not run"
    ),
    "engines/finish:UNEVEN": fixed(
        "largest second derivative beside the smallest, from which looks are not rounded", "open: its sweep was not run"
    ),
    "engines/finish:STEPS": Threshold("predicted Newton steps"),
    "engines/finish:MOST_STEPS": Threshold("the most Newton steps of an attempt"),
    "engines/finish:NEAR": Threshold("part of its weight at which a slope counts"),
    "engines/finish:ROUNDING": Threshold("part of an objective that may be rounding"),
    "engines/finish:MOST": fixed("the most features of a model", "limit: messages of at most about 0.75 MB"),
    "engines/finish:EPS": Threshold("least eigenvalue of a model"),
    "engines/looks:LOOSEST": Threshold(
        "the largest gap that is looked for", also=("engines/stopping", "engines/finish")
    ),
    "engines/looks:SMALLEST": fixed(
        "the smallest gap that is looked for with rounded gradients",
        "derived: at 31 bits a level is 5e-10 of the largest",
    ),
    "engines/stopping:POOR": fixed(
        "gap beside the one looked for that is taken for rounding", "open: its sweep was not run"
    ),
    "engines/prepare:ACCURACY": fixed("what a run is for where nothing says it", "measured: in the comment beside it"),
    "engines/prepare:EVALUATIONS": fixed("evaluations of a run", "documented: in `solve`"),
    "engines/prepare:CHECKPOINTS": fixed("checkpoints of a run", "documented: in `solve`"),
    "engines/prepare:ROUNDS": fixed("the most rounds where nothing is said", "documented: in `solve`"),
    "precondition/cost:LOOK_BITS": fixed("predicted bits of an entry in a look", "derived: what a look for 1e-3 sends"),
    "precondition/cost:LOOK_UP": fixed("predicted bits of a look besides, up", "derived: loss, header and scale"),
    "precondition/cost:LOOK_DOWN": fixed("predicted bits of a look besides, down", "derived: header and scale"),
    "precondition/cost:MODEL_BITS": fixed("predicted bits of a second derivative", "open: its sweep was not run"),
    "precondition/cost:MODEL_UP": fixed("predicted bits of a model besides", "derived: header and scales"),
    "precondition/exchange:SCALE_ROUNDING": fixed("rounding of a scale", "derived: twice that of float32"),
    "precondition/exchange:LARGEST_SLOPE": fixed(
        "size up to which entries of slopes are sent", "derived: sums of squares of them are within float64 and float32"
    ),
    "engines/stopping:PATIENCE": Threshold("growth of rounds between looks", above_one),
    "engines/stopping:THOROUGH": Threshold("the same of looks that more is sent for", above_one),
    "engines/stopping:FIRST": Threshold("first look without an estimate"),
    "engines/stopping:DOUBT": fixed(
        "estimate at which rounding is suspected", "needed: float32 rows to 1e-8 take 200 rounds without, 18 with"
    ),
    "engines/stopping:FINE": fixed(
        "tolerance below which questions are in full precision", "derived: float32 has 6e-8; tolerances here are larger"
    ),
    "engines/stopping:RESTING": Threshold("roundings within which an objective rests"),
    "engines/stopping:SURE": Threshold("part of the tolerance at which Newton's estimate ends a run"),
    "engines/stopping:WATCH": Threshold("rounds for which rest is watched", above_one),
    "engines/stopping:AT_LEAST": Threshold("the fewest of these"),
    "engines/stopping:EVERYONE": Threshold("the same, in rounds in which all take part once"),
    "engines/stopping:CHEAP": Threshold("expected gap, in tolerances, at which clients are asked for two numbers"),
    "engines/stopping:DEAR": Threshold("the same, for gradients"),
    "engines/choice:FAR": Threshold("exchanges of Newton's method beside log2 of the digits"),
    "engines/choice:MOST_COEFFICIENTS": fixed("coefficients up to which Hessians are sent", "limit: messages of 4 MB"),
    "engines/choice:MOST_CLIENTS": fixed(
        "clients up to which Hessians are sent each round", "open: their traffic grows with the number of clients"
    ),
    "engines/choice:STEPS": fixed("exchanges where f is quadratic", "derived: one that asks, one that is certified"),
    "engines/choice:SHORT": Threshold("numbers up to which a message is short"),
    "engines/choice:LEVELS": Threshold("levels up"),
    "engines/choice:LEVELS_OF_SHORT": Threshold("levels up of short messages"),
    "engines/choice:LEVELS_DOWN": Threshold("levels down"),
    "methods/shifted:PAST": Threshold("weight of the past in smoothed progress", below_one),
    "methods/shifted:ALARM": Threshold("growth of squared progress that is an alarm"),
    "methods/shifted:LOOSE": Threshold("the same before shifts are learned", without=0.0625),
    "methods/shifted:GROWTH": Threshold("growth of a step in a round", above_one, without=1e06),
    "methods/shifted:LARGEST": Threshold("growth of a step in all"),
    "methods/shifted:SAFE": Threshold("step beside the curvature seen", below_one),
    "methods/shifted:FORGET": Threshold("rate at which curvature is forgotten", below_one, without=5),
    "methods/_preconditioned:TOLERANCE": Threshold("accuracy of the server's prox"),
    "methods/_preconditioned:FINE_TOLERANCE": Threshold("the same with Newton steps"),
    "methods/_preconditioned:DUAL_STEPS": Threshold("dual steps of a round, at first"),
    "methods/_preconditioned:MOST_DUAL_STEPS": Threshold("dual steps of a round, at most"),
    "methods/_preconditioned:MEAN_DUAL_STEPS": Threshold("dual steps of a round, on average"),
    "methods/_preconditioned:UNEVEN": fixed(
        "condition number for which the dual steps of a round are enough", "derived: they need √κ ln(1/tolerance)"
    ),
    "methods/_preconditioned:DEAR": fixed(
        "multiplications of a Newton step of the prox", "limit: some tenths of a second in a round"
    ),
    "methods/_preconditioned:OF_X": fixed("the same for a penalty of x itself", "limit: few Newton steps do"),
}

LIMIT = "a limit of work: what reaches it ends as not converged"
ROUNDED = "derived: some units of the last place of float64"
TEMPORARY = "derived: how much temporary memory a product takes; results do not depend on it"

#: Those of `fpdfp.minimize`, which `python -m benchmarks.pooled_thresholds` sweeps.
POOLED: dict[str, Threshold] = {
    "pooled/wide:RELAXED": Threshold("length of a primal-dual step; converges below 2", lambda v, f: 2 - (2 - v) * f),
    "pooled/wide:MOST_ROWS": fixed("the most rows", "derived: a factorisation takes n³/3 = 9e9 multiplications"),
    "pooled/wide:MOST": fixed("the most primal-dual steps", LIMIT),
    "pooled/wide:FIRST": Threshold("steps before F is looked at"),
    "pooled/wide:LATER": Threshold("growth of steps between two looks at F", above_one),
    "pooled/wide:POWER": Threshold("power of the steps with which gaps are expected to shrink"),
    "pooled/wide:SOON": Threshold("least growth of steps between two looks at the gap", above_one),
    "pooled/wide:SUIT": Threshold("steps before σ is chosen anew"),
    "pooled/wide:SUITS": Threshold("how often σ is chosen anew"),
    "pooled/wide:EXACT": Threshold("accuracy of a prox of f"),
    "pooled/wide:ROUNDING": fixed("the best accuracy of a prox of f", ROUNDED),
    "pooled/wide:SHRINK": Threshold("how much a factorisation must shrink errors to be kept"),
    "pooled/wide:NEWTON": fixed("the most Newton steps of a prox", LIMIT),
    "pooled/wide:POLISH": Threshold("dual steps that improve a dual point"),
    "pooled/wide:WEIGHT": Threshold("weight of Bᵀv = −∇f(x) in them"),
    "pooled/wide:PATIENCE": Threshold("looks at the gap without halving it"),
    "pooled/working_set:ALL": Threshold("coordinates up to which all are worked on"),
    "pooled/working_set:NARROW": Threshold("part of dense blocks up to which they are worked on alone"),
    "pooled/working_set:FEW": Threshold("blocks of the first working set"),
    "pooled/working_set:MOST": fixed("the most coordinates with a Hessian", "derived: 72 MB, 9e9 multiplications"),
    "pooled/working_set:OUTSIDE": Threshold("part of the error outside for which a working set is kept"),
    "pooled/working_set:NEAR": Threshold("accuracy of a model beside the goal"),
    "pooled/working_set:SWEEPS": Threshold("sweeps that take as long as a Hessian"),
    "pooled/working_set:THIN": Threshold("part of the violated blocks in a set of sparse columns"),
    "pooled/working_set:PART": Threshold("accuracy of a model beside its error, without a Hessian"),
    "pooled/working_set:MAX_INNER": Threshold("the most steps on one working set"),
    "pooled/working_set:PATIENCE": Threshold("rounds without progress"),
    "pooled/fit:PANEL": fixed("columns of a product of BLAS", TEMPORARY),
    "pooled/fit:ROWS": fixed("rows that are widened at a time", TEMPORARY),
    "pooled/fit:NEAR": fixed("numbers that are multiplied forth and back at a time", TEMPORARY),
    "pooled/fit:STALE": Threshold("change of second derivatives after which a Hessian is computed again"),
    "pooled/fit:SLOW": Threshold("how much a step must shrink what is left for a Hessian to be kept"),
    "pooled/fit:PART": Threshold("the part of dense rows that a Hessian is computed from"),
    "pooled/fit:OVER": Threshold("rows of it for each coordinate"),
    "pooled/fit:SINGLE": Threshold("coordinates from which it is computed in float32"),
    "pooled/fit:CLEAR": fixed("part of F below which promises are rounding", ROUNDED),
    "pooled/fit:LARGEST": fixed("range of sums of squares in float32", "derived: 1e38 less products and sums"),
    "pooled/fit:ROUNDING": fixed("rounding of F", ROUNDED),
    "pooled/fit:HALVINGS": fixed("shortenings of a step", LIMIT),
    "pooled/fit:DENSE_STEP": Threshold("features with which a Hessian takes as long as a product, dense"),
    "pooled/fit:SPARSE_STEP": Threshold("entries of a row with which it does, sparse"),
    "pooled/fit:FEW_STEPS": Threshold("the fewest steps without a Hessian"),
    "pooled/composite:WITHIN": Threshold("accuracy of a model that is f itself", below_one),
    "pooled/composite:ROWS": fixed("rows for each feature", "derived: below, a model is flat where f is"),
    "pooled/composite:WIDE": fixed("features with accelerated steps and a Hessian", "derived: 200 MB"),
    "pooled/composite:PATIENCE": Threshold("steps without progress"),
    "pooled/lagrangian:PATIENCE": Threshold("multipliers without progress"),
    "pooled/lagrangian:ROUNDING": fixed("the least accuracy of gradients", ROUNDED),
    "pooled/lagrangian:RESIDUAL": fixed("residual that counts as stationary", "documented in `minimize`"),
    "pooled/lagrangian:APART": Threshold("ratio of sizes of features from which units change"),
    "pooled/lagrangian:UNITS": fixed("violation that rounding explains", "documented in `Minimum`; 64 units"),
    "pooled/lagrangian:CORRECTIONS": Threshold("the most corrections of an x outside"),
    "quadratic/columns:SWEEPS": Threshold("sweeps before the error is looked at"),
    "quadratic/columns:POINTS": Threshold("points that are extrapolated"),
    "quadratic/columns:ROUNDS": fixed("the most rounds", LIMIT),
    "quadratic/columns:SMALL": fixed("ridge of an extrapolation", "derived: the root of float64 would be 1e-8"),
    "quadratic/blocks:SWEEPS": Threshold("sweeps between Newton steps"),
    "quadratic/blocks:NEWTON": Threshold("Newton steps between sweeps"),
    "quadratic/blocks:LONG": Threshold("coordinates with which a Newton step takes as long as sweeps"),
    "quadratic/blocks:QUICK": Threshold("how much sweeps must shrink the error to be repeated"),
    "quadratic/newton:GROWTH": Threshold("growth of σ with each multiplier", above_one, also=("pooled/lagrangian",)),
    "quadratic/newton:EXACT": Threshold("accuracy of a quadratic beside its decrease", also=("pooled/composite",)),
    "quadratic/newton:SPARSE": Threshold("part of entries up to which B is a sparse matrix"),
    "quadratic/newton:STALLED": Threshold("Newton steps without progress"),
    "quadratic/accelerated:TRIAL": Threshold("part of accelerated steps after which the rest is predicted"),
    "quadratic/accelerated:SAFE": Threshold("margin of the curvature met", above_one),
    "quadratic/accelerated:MORE": Threshold("growth of the curvature", above_one),
    "quadratic/accelerated:PART": Threshold("accuracy of a prox beside that of the quadratic"),
    "quadratic/solve:MOST": Threshold("the most accelerated steps for a quadratic"),
    "quadratic/solve:WITHIN": Threshold("accuracy of a quadratic with accelerated steps"),
    "quadratic/dual:LOOK": Threshold("dual steps between two looks at the gap"),
}
