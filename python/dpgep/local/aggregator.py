"""The server's side: sum reports, solve for the mean of what they hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.data.integer_moments import carry, limbs_to_float
from dpgep.local.protocol import LocalMechanism, ReportError, Reports, calibrate, require_calibrated
from dpgep.methods.base import Diagnostics, MethodResult, PairOptions, component_count, method_result, support_of
from dpgep.methods.eigen import embedded, quotient_accuracy
from dpgep.methods.papers.fantope import FantopeFit, fantope_relaxation
from dpgep.methods.release import solve_released
from dpgep.models import PcaModel
from dpgep.models.model import Matrix, Model
from dpgep.models.moments import MomentNoise, ReleasedMoments
from dpgep.privacy.budget import Budget
from dpgep.reports.guarantee import PublicInputs
from dpgep.reports.report import PrivacyReport
from dpgep.results.solution import Solution, solution_of, warn_of_accuracy
from dpgep.run import warn_of_delta
from dpgep.serialization import Format, Target, save, stored_as, symmetric_of

# Reports that are looked at and added together: they stay in the cache from one to the other.
_SLAB_BYTES = 1 << 20
_MOST_REPORTS = 1 << 63

SUMS = Format("dpgep-local-sums")


@dataclass(frozen=True, eq=False)
class StoredSums:
    """What a file of an `Aggregator` holds; limbs are (2, size), the lower one first."""

    mechanism: LocalMechanism
    seeded: bool
    n_reports: int
    limbs: NDArray[np.int64]


class Aggregator:
    """Sums of local reports, and the principal components that follow from them.

    Reports of one mechanism are accepted, whoever made them; their number is public. Anything else is refused by a
    `ReportError`, a whole batch or nothing: what has been aggregated stays as it was. So a server adds in a loop, and
    logs what it refuses.

    Parameters
    ----------
    dim, bound, epsilon, delta, records_per_person
        As those of the clients' `GaussianRandomizer`.

    Notes
    -----
    A server cannot tell a client that lies from one that does not. What is enforced: the sum of a batch of m reports is
    no longer than that of m honest ones (but for a probability below exp(-700)). A report that arrives twice counts
    twice: keep names of clients, where that can happen, outside.

    Reports are integers, of either dtype, and sums of them are exact: the same bits in any order, from any number of
    servers.

    Not for several threads at once: let each have its own, and `merge`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgep.local import GaussianRandomizer
    >>> rows = np.random.default_rng(0).standard_normal((5000, 3)) * [0.8, 0.3, 0.1]
    >>> client = GaussianRandomizer(3, bound=1.0, epsilon=4.0, delta=1e-6)
    >>> server = Aggregator(3, bound=1.0, epsilon=4.0, delta=1e-6)
    >>> server.add(client.randomize_rows(rows))
    >>> server.add(client.randomize(rows[0]).to_bytes())
    >>> server.n_reports
    5001
    >>> solution = server.solve(n_components=1)
    >>> bool(abs(solution.components[0, 0]) > 0.9)
    True
    """

    def __init__(
        self, dim: int, bound: float, epsilon: float, delta: float | None = None, *, records_per_person: int = 1
    ) -> None:
        self.mechanism: LocalMechanism = calibrate(dim, bound, epsilon, delta, records_per_person=records_per_person)
        self._model = PcaModel(self.mechanism.dim, center=False)
        self.n_reports, self.seeded = 0, False
        # low and high limbs, carried: unique, whatever the order of the reports
        self._sum: NDArray[np.int64] = np.zeros((2, self.mechanism.size), dtype=np.int64)

    def add(self, reports: Reports | bytes | bytearray | memoryview) -> None:
        """Add `Reports` or their bytes.

        Raises ReportError if they are malformed or of another mechanism, hold anything but integers, or are longer than
        honest reports are: then none of them is added. TypeError if they are something else.
        """
        if isinstance(reports, (bytes, bytearray, memoryview)):
            reports = Reports.from_bytes(reports)
        if not isinstance(reports, Reports):
            raise TypeError(f"add takes Reports or their bytes, got {type(reports).__name__}")
        self._check_mechanism(reports.mechanism, "these reports have")
        self._accept(self._checked_sum(reports.values), len(reports), reports.seeded)

    def merge(self, other: Aggregator) -> None:
        """Add everything that ``other`` has aggregated. Raises ReportError if it is of another mechanism."""
        if not isinstance(other, Aggregator):
            raise TypeError(f"merge takes an Aggregator, got {type(other).__name__}")
        self._check_mechanism(other.mechanism, "the other aggregator has")
        self._accept(other._sum, other.n_reports, other.seeded)

    def save(self, target: Target) -> None:
        """Write the sums with a checksum, to a path or an open binary file; `dpgep.load` reads them."""
        save(SUMS.packed(StoredSums(self.mechanism, self.seeded, self.n_reports, self._sum)), target)

    @classmethod
    def restored(cls, stored: StoredSums) -> Aggregator:
        """The aggregator of stored sums. Raises ReportError for sums that no reports have."""
        theirs, count, limbs = stored.mechanism, stored.n_reports, stored.limbs
        require_calibrated(theirs, "aggregate")
        if limbs.shape != (2, theirs.size) or not 0 <= count < _MOST_REPORTS:
            raise ReportError(f"limbs of shape {limbs.shape} are not a sum of {count} such reports")
        terms = theirs.dim, theirs.bound, theirs.epsilon, theirs.delta
        aggregator = cls(*terms, records_per_person=theirs.records_per_person)
        aggregator._accept(limbs, count, stored.seeded)
        aggregator._check_length(aggregator._to_float(aggregator._sum), count)
        return aggregator

    def second_moment(self) -> Matrix:
        """(d, d) mean of all reports: an unbiased estimate of (1/n) sum x x^T, in the units of the data."""
        if self.n_reports == 0:
            raise ValueError("no reports have been added")
        mean = self._to_float(self._sum) * (self.mechanism.bound**2 / self.n_reports)
        return symmetric_of(mean, self.mechanism.dim)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on the diagonal of `second_moment`; off the diagonal 1/sqrt(2) of it."""
        if self.n_reports == 0:
            return math.inf if self.mechanism.is_noisy else 0.0
        return self.mechanism.deviation * self.mechanism.bound**2 / math.sqrt(self.n_reports)

    def solve(self, n_components: int | None = None, **options: Any) -> Solution:
        """Leading eigenvectors of the mean of all reports: principal components without centring.

        Costs no privacy, however often it is called, and with however many components.

        Parameters
        ----------
        n_components : int, optional
            K; default: all d.
        **options
            Of the method "release", here as there: ``sparsity`` and ``separate_supports``.

        Returns
        -------
        Solution
            Its `PrivacyReport` is that of one person; ``adjacency`` is "local".

        Warns
        -----
        AccuracyWarning
            If the components are mostly noise.
        PrivacyWarning
            If delta is 1/n or more.

        Source: Wang and Xu (2020), Algorithm 1, steps 4 and 5.
        """
        k = component_count(self._model, n_components)
        settings = PairOptions(**options)
        settings.check_model(self._model, k)
        return self._solution(solve_released(self._model.noisy(self._moments()), k, settings), "local-gaussian")

    def solve_sparse(
        self,
        n_components: int,
        penalty: float | None = None,
        *,
        tolerance: float = 1e-6,
        max_iterations: int = 5000,
        start: Solution | None = None,
    ) -> Solution:
        """Sparse principal components of the mean S of all reports, by Fantope projection and selection.

        The convex problem max tr(S H) - phi ||H||_{1,1} over 0 <= H <= I, tr H = K is solved by ADMM; the components
        are the directions of largest variance within the span of its K leading eigenvectors. Costs no privacy, with
        however many penalties.

        Parameters
        ----------
        n_components : int
            K.
        penalty : float, optional
            phi >= 0, in the units of S (bound^2). Default: what the largest entry of the noise hardly exceeds,
            `deviation` sqrt(2 log(d (d + 1))).
        tolerance : float
            Stop where the duality gap is at most this times |objective|.
        max_iterations : int
            At most this many steps of ADMM.
        start : Solution, optional
            Another answer of this method, for a similar penalty and the same K, to start from.

        Returns
        -------
        Solution
            Entries of ``components`` outside ``diagnostics.support`` are zero; ``eigenvalues`` are the variances
            v^T S v; ``diagnostics`` is a `FantopeDiagnostics`, with status and duality gap.

        Warns
        -----
        AccuracyWarning
            If ADMM has not converged.

        Source: Wang and Xu (2020), Algorithm 2; Vu, Cho, Lei and Rohe (2013).
        """
        k = component_count(self._model, n_components)
        phi = default_penalty(self.deviation, self.mechanism.dim) if penalty is None else penalty
        moments = self._moments()
        earlier = None if start is None else start.diagnostics
        if not (earlier is None or isinstance(earlier, FantopeDiagnostics)):
            raise TypeError("start must be a solution of solve_sparse")
        how = {"tolerance": tolerance, "max_iterations": max_iterations, "start": earlier and earlier.fit}
        result = sparse_components(self._model, moments.second, moments.second_noise_level, k, phi, **how)
        return self._solution(result, "local-gaussian-sparse")

    def _solution(self, result: MethodResult, method: str) -> Solution:
        mechanism, n = self.mechanism, self.n_reports
        report = PrivacyReport(
            epsilon=mechanism.epsilon,
            delta=mechanism.delta,
            mu=mechanism.spent_mu(),
            adjacency="local",
            bound=mechanism.bound,
            releases=mechanism.releases(),
            exact=mechanism.is_noisy,
            seeded=self.seeded,
            public=PublicInputs(self._model.name, mechanism.dim, n),
        )
        # intervals would take reports for people, each of whom may have sent several
        kept = replace(result, moments=None)
        solution = solution_of(kept, report, self._model, method, passes=0, preprocessing=None)
        warn_of_delta(Budget(epsilon=mechanism.epsilon, delta=mechanism.delta), n, solution)
        warn_of_accuracy(result, solution)
        return solution

    def _moments(self) -> ReleasedMoments:
        sums, noise = np.empty((self.mechanism.dim, 0)), MomentNoise(self.deviation, 0.0, 0.0)
        return ReleasedMoments(sums, np.empty(0), float(self.n_reports), noise, self.second_moment())

    def _check_mechanism(self, theirs: LocalMechanism, what: str) -> None:
        difference = self.mechanism.mismatch(theirs)
        if difference is not None:
            raise ReportError(f"{what} {difference}: refused, {self.n_reports} reports so far are kept")

    def _to_float(self, total: NDArray[Any]) -> Matrix:
        """(size,) sum of reports in units of bound^2, from its limbs, which stay as they are while others are added."""
        low, high = total.copy()
        return limbs_to_float(high, low, -2 * self.mechanism.bits)

    def _check_length(self, total: Matrix, n: int) -> None:
        """Raise unless n honest reports may have this sum."""
        norm, limit = math.sqrt(total @ total), self.mechanism.largest_norm(n)
        if norm > limit:
            raise ReportError(f"the sum of {n} reports has norm {norm:.3g} bound^2, honest ones at most {limit:.3g}")

    def _checked_sum(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """(2, size) exact sum of the rows in two limbs; none overflows, as no entry is larger than an honest one."""
        n, size, largest = len(values), self.mechanism.size, self.mechanism.largest_entry()
        total = np.zeros((2, size), dtype=np.int64)
        room, height = (1 << 62) // largest, max(1, _SLAB_BYTES // (8 * size))
        for first in range(0, n, room):
            last = min(first + room, n)
            for start in range(first, last, height):
                total[0] += _integers(values[start : min(start + height, last)], largest, start, n).sum(axis=0)
            carry(total[1], total[0])
        self._check_length(self._to_float(total), len(values))
        return total

    def _accept(self, total: NDArray[np.int64], n: int, seeded: bool) -> None:
        self._sum += total
        carry(self._sum[1], self._sum[0])
        self.n_reports += n
        self.seeded |= seeded


def _integers(slab: NDArray[Any], largest: int, start: int, n: int) -> NDArray[np.int64]:
    """Reports from number ``start`` of n on as int64; ReportError unless they hold integers of modulus <= largest."""
    # a NaN is in no range
    if not (slab.max() <= largest and slab.min() >= -largest):
        wrong = start + int(np.argmin(((slab <= largest) & (slab >= -largest)).all(axis=1)))
        raise ReportError(f"report {wrong} of {n} has an entry beyond {largest}, more than an honest report can have")
    if slab.dtype != np.int64 and (np.trunc(slab) != slab).any():
        wrong = start + int(np.argmax((np.trunc(slab) != slab).any(axis=1)))
        raise ReportError(f"report {wrong} of {n} has a non-integer entry")
    return slab.astype(np.int64, copy=False)


@stored_as("fantope")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FantopeDiagnostics(Diagnostics):
    """How the relaxation went; all from released values. Expected errors are of the noise on the features in use.

    Attributes
    ----------
    penalty : phi.
    support : indices of the features that any component uses.
    fit : the relaxation: its ``objective``, the duality ``gap``, whether it ``converged``; ``start=`` of the next.
    """

    penalty: float
    support: tuple[int, ...]
    fit: FantopeFit

    def summary(self) -> list[str]:
        fit, end = self.fit, "converged" if self.fit.converged else "NOT converged"
        return [
            f"  Fantope      {fit.n_iterations} iterations, {end}: gap {fit.gap:.2g} of {abs(fit.objective):.3g}",
            f"  sparsity     penalty {self.penalty:.3g}, {len(self.support)} features used",
        ]


def default_penalty(deviation: float, d: int) -> float:
    """What the largest entry of GOE(deviation) exceeds with probability below 1/2 only: s sqrt(2 log(d (d + 1))).

    Wang and Xu (2020, Theorem 4) ask for more than the largest error of an entry: here mostly noise.
    """
    return deviation * math.sqrt(2 * math.log(d * (d + 1)))


def sparse_components(
    model: Model, second: Matrix, noise_level: float, n_components: int, penalty: float, **how: Any
) -> MethodResult:
    """K directions in the span of the leading eigenvectors of `fantope_relaxation`'s solution; ``second`` is kept.

    Within that span they are the ones of largest variance v^T S v, so that each is determined, not the span alone.
    """
    fit = fantope_relaxation(second, None, n_components, penalty, **how)
    support = np.flatnonzero(fit.sparse.any(axis=0))
    if len(support) < n_components:  # as may happen before convergence
        support = np.arange(len(second))
    block = np.ix_(support, support)
    span = scipy.linalg.eigh(fit.sparse[block])[1][:, -n_components:]
    values, rotation = scipy.linalg.eigh(span.T @ second[block] @ span)
    components = embedded((span @ rotation[:, ::-1]).T, support, len(second))
    sizes: Any = {"n_features": len(second), "sparsity": len(support), "centre": float(np.diagonal(second).mean())}
    accuracy = quotient_accuracy(values[::-1], np.ones(n_components), noise_level=noise_level, **sizes)
    found: Any = {"accuracy": accuracy, "penalty": penalty, "support": support_of(components), "fit": fit}
    diagnostics = FantopeDiagnostics(noise_level=noise_level, **found)
    said = f"the relaxation had not converged after {fit.n_iterations} iterations: raise max_iterations or tolerance"
    return method_result(model, None, components, values[::-1].copy(), diagnostics, [said] * (not fit.converged))
