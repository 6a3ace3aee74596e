"""`dpgep.release` and its result: noisy moments to keep, to solve in many ways, and to add to other sites'."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpgep._files import Target, save
from dpgep.data.inputs import named
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentNoise, ReleasedMoments
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import RowModel
from dpgep.privacy.accounting import Accounting, epsilon_of
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import LedgerEntry, NoiseBlock
from dpgep.privacy.moment_release import Release
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.moment_problem import MomentProblem
from dpgep.questions.questions import Questions, answer
from dpgep.reports.guarantee import PublicInputs
from dpgep.reports.report import PrivacyReport
from dpgep.run import Run
from dpgep.serialization import Format
from dpgep.solution import Solution

RELEASE = Format("dpgep-release")


@dataclass(frozen=True, eq=False, repr=False)
class PrivateMoments(Questions):
    """One noisy release of the moments of people: everything in it is public.

    ``a + b`` are the moments of both populations together, which must be disjoint: nobody's rows are in both. Each
    person is then protected by the release of their own population (parallel composition): the sum has the larger of
    the two privacy parameters, not their sum. Which population a person belongs to is considered public, and under
    replace-one so are the sizes. Two releases of the same problem are refused; overlap of different problems is not
    detected. With the populations' sizes n_a, n_b (or released counts)

        M = (n_a M_a + n_b M_b)/(n_a + n_b),   noise deviations sqrt((n_a s_a)^2 + (n_b s_b)^2)/(n_a + n_b):

    k sites of equal size have noise sqrt(k) times that of a single curator over all rows.

    Attributes
    ----------
    model : what was computed.
    adjacency, bound : of the release.
    privacy : PrivacyReport
    n_people : number of people used for normalization: public, or a released noisy count.
    """

    model: RowModel
    privacy: PrivacyReport
    _noisy: ReleasedMoments
    _sources: frozenset[str]
    preprocessing: Preprocessing | None = None

    @property
    def n_people(self) -> float:
        """Number of people used for normalization: public, or a released noisy count."""
        return self._noisy.n

    @property
    def second_moment(self) -> Matrix:
        """(d, d), noisy (1/n) sum x x^T of the clipped rows."""
        return np.array(self._noisy.second)

    def solve(self, n_components: int | None = None, **options: Any) -> Solution:
        """Leading solutions of A v = lambda B v, as `dpgep.solve` with ``method="release"`` computes them.

        Free, any number of times. Options: `dpgep.methods.options.PairOptions` (``regularization``,
        ``sparsity``, ``separate_supports``).
        """
        noisy = replace(self._noisy, second=self._noisy.second.copy())  # solving overwrites it
        return answer(self.model, noisy, self.preprocessing, self.report, n_components, options)

    def __add__(self, other: PrivateMoments) -> PrivateMoments:
        if not isinstance(other, PrivateMoments):
            return NotImplemented
        ours, theirs = self._kind(), other._kind()
        if ours != theirs:
            differing = [f"{key} ({ours[key]!r} and {theirs[key]!r})" for key in ours if ours[key] != theirs[key]]
            raise ValueError(f"the releases differ in {', '.join(differing)}: they cannot be added")
        if self._sources & other._sources:
            raise ValueError(
                "both sums include releases of the same people, who would count twice and have paid for both. Only "
                "releases of disjoint populations can be added"
            )
        model = named(self.model, *other.model.view_names)
        noisy = _pooled(self._noisy, other._noisy)
        privacy, sources = _parallel(self.privacy, other.privacy), self._sources | other._sources
        return PrivateMoments(model, privacy, noisy, sources, self.preprocessing)

    def save(self, target: Target) -> None:
        """Write the release with a checksum, for `dpgep.load`: by oneself later, or by whoever adds releases.

        A file of this name is replaced atomically. Raises TypeError for classes that are not text, numbers or booleans.

        Parameters
        ----------
        target
            A path, or a binary file that is open.
        """
        save(RELEASE.packed(self), target)

    def _kind(self) -> dict[str, Any]:
        """What must agree for releases to be added."""
        return {
            "model": self.model,
            "adjacency": self.privacy.adjacency,
            "bound": self.privacy.bound,
            "preprocessing": self.preprocessing,
        }

    def __repr__(self) -> str:
        sites = f" of {len(self._sources)} populations" if len(self._sources) > 1 else ""
        asked = ", ".join(self._questions())
        return (
            f"PrivateMoments({self.model.name}, d={self.model.n_features}{sites}; {self.privacy}; "
            f"{f'to be asked, at no further cost: {asked}' if asked else 'solve() is what it answers'})"
        )

    def _questions(self) -> list[str]:
        """The questions that were released for: `Questions`."""
        if not self._noisy.sums.size:
            return []
        grouped = [("fda", "classes"), ("classifier", "classes"), ("sir", "interior_edges")]
        of_all = ["pca", "cca", "pls", "mean", "covariance", "correlation", "regression", "sample"]
        return of_all + [name for name, groups in grouped if getattr(self.model, groups, None) is not None]


def release(
    problem: MomentProblem | Moments,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    budget: Budget | None = None,
    share: float | None = None,
    accounting: Accounting = "gdp",
    seed: int | None = None,
) -> PrivateMoments:
    """One noisy release of the moments of people, from which everything else is computed at no further cost.

    `dpgep.solve` with ``method="release"`` is this, followed by `PrivateMoments.solve`. Use it to keep the release, or
    to add those of several sites.

    Parameters
    ----------
    problem : from `dpgep.table`, `pca`, `cca`, `pls`, `fda` or `sir`, or `dpgep.Moments`
        The data and the model.
    epsilon, delta, rho, mu, budget, share, accounting, seed
        As in `dpgep.solve`.

    Returns
    -------
    PrivateMoments

    Raises
    ------
    PrivacyBudgetError
        If the budget does not suffice; raised before data are read.
    TypeError, ValueError
        As `dpgep.solve`; nothing is then released or spent.

    Examples
    --------
    Two hospitals, each with its own budget:

    >>> import numpy as np, dpgep
    >>> rng = np.random.default_rng(0)
    >>> north, south = (rng.standard_normal((5000, 4)) * [2, 1, 1, 1] / 8 for _ in range(2))
    >>> one, two = (dpgep.release(dpgep.pca(rows, bound=1.0), epsilon=1.0, delta=1e-6) for rows in (north, south))
    >>> (one + two).solve(n_components=1).privacy.epsilon
    1.0
    """
    if not isinstance(problem, (MomentProblem, Moments)):
        raise TypeError(
            "problem must have moments: dpgep.table, pca, cca, pls, fda, sir or dpgep.Moments; "
            f"got {type(problem).__name__}"
        )
    forms = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    run = Run(problem, budget=budget, share=share, accounting=accounting, seed=seed, **forms)
    with run.reserved():
        noisy = run.curator(Curator).answer(Release())
    assert isinstance(noisy, ReleasedMoments)
    moments = PrivateMoments(problem.model, run.report, noisy, frozenset([problem.population_id]), run.preprocessing)
    run.warn_of_counted(moments)
    return moments


def _pooled(a: ReleasedMoments, b: ReleasedMoments) -> ReleasedMoments:
    """Weighted means by numbers of people; independent noise adds in quadrature."""
    n = a.n + b.n
    ours, theirs = a.n / n, b.n / n
    noise = [math.hypot(ours * s, theirs * t) for s, t in zip(_deviations(a), _deviations(b), strict=True)]
    return ReleasedMoments(
        sums=ours * a.sums + theirs * b.sums,
        counts=ours * a.counts + theirs * b.counts,
        n=n,
        noise=MomentNoise(*noise),
        second=ours * a.second + theirs * b.second,
    )


def _deviations(noisy: ReleasedMoments) -> tuple[float, float, float]:
    return noisy.noise.second, noisy.noise.sums, noisy.noise.counts


def _parallel(a: PrivacyReport, b: PrivacyReport) -> PrivacyReport:
    """The report of releases of disjoint populations: each person is in only one, so the larger cost covers all."""
    assert a.mu is not None
    assert b.mu is not None
    mu = max(a.mu, b.mu)
    deltas = [report.delta for report in (a, b)]
    delta = None if None in deltas else max(delta for delta in deltas if delta is not None)
    # the moments are the last release, after what prepared them; without noise they have no blocks
    blocks = zip(a.releases[-1].noise, b.releases[-1].noise, strict=False)
    noise = tuple(NoiseBlock(x.name, x.shape, math.hypot(x.deviation, y.deviation)) for x, y in blocks)
    bits = [report.releases[-1].grid_bits for report in (a, b)]
    merged = LedgerEntry("moment matrices of disjoint populations", mu, noise, bits[0] if bits[0] == bits[1] else None)
    return PrivacyReport(
        epsilon=None if delta is None else _epsilon(a, b, mu, delta),
        delta=delta,
        mu=mu,
        adjacency=a.adjacency,
        bound=a.bound,
        releases=(merged,),
        exact=a.exact and b.exact,
        seeded=a.seeded or b.seeded,
        public=_together(a.public, b.public),
    )


def _together(a: PublicInputs | None, b: PublicInputs | None) -> PublicInputs | None:
    if a is None or b is None:
        return None
    n = None if a.n_people is None or b.n_people is None else a.n_people + b.n_people
    ranges = tuple(dict.fromkeys([*a.ranges, *b.ranges]))
    return replace(a, n_people=n, feature_names=a.feature_names or b.feature_names, ranges=ranges)


def _epsilon(a: PrivacyReport, b: PrivacyReport, mu: float, delta: float) -> float:
    """Epsilon at a delta that is at least that of both: the larger stated one, or the exact one if that is less."""
    stated = [report.epsilon for report in (a, b) if report.epsilon is not None]
    return min(max(stated), epsilon_of(mu, delta)) if len(stated) == 2 else epsilon_of(mu, delta)
