"""The curator: the only part that holds data. It answers a query if the ledger can pay, and records the release.

What a query returns is public. How each kind of problem is answered with noise is a mechanism, in the modules beside
this one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.models.gep import ReleasedMatrices
from dpgep.models.model import Model, PublicFacts
from dpgep.models.moments import ReleasedMoments
from dpgep.privacy.clipped_products import Asked, ClippedProducts, NoisyMean, Thresholds
from dpgep.privacy.ledger import Charge, Ledger, LedgerEntry
from dpgep.privacy.matrix_release import release_matrices
from dpgep.privacy.moment_release import KeptSums, release_moments
from dpgep.privacy.products import NoisyProducts, ProductNoise, matrix_products, row_products
from dpgep.privacy.sampled import SampledMechanism, add_remove_mu
from dpgep.privacy.sampled_products import NoisySamples, sampled_products
from dpgep.privacy.screening import Screen, screen_matrices, screen_rows
from dpgep.problems.gep import MatrixProblem
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.moment_problem import MomentProblem
from dpgep.problems.problem import Problem

# the (epsilon, delta) of a run, for answers that no mu describes
Target = tuple[float, float]


@dataclass(frozen=True, eq=False)
class PublicSide:
    """The public facts of a problem.

    Attributes
    ----------
    model, facts : what is to be computed, from how many people and within which bound.
    largest_b : an upper bound on the largest eigenvalue of B; None where no public one exists.
    at_hand : whether there are rows in memory, so that many passes over them cost little.
    mapped : whether each pass maps them first.
    """

    model: Model
    facts: PublicFacts
    largest_b: float | None
    at_hand: bool
    mapped: bool

    @classmethod
    def of(cls, problem: Problem) -> PublicSide:
        return cls(problem.model, problem.facts, problem.largest_b, problem.at_hand, problem.mapped)


class Mechanism(ABC):
    """How problems of one kind are answered with noise from ``stream``; ``charge`` records the cost of an answer.

    Without rows, queries that need them are refused.
    """

    kind: str

    def __init__(self, stream: core.NoiseStream) -> None:
        self._stream = stream

    @abstractmethod
    def release(self, mu: float, charge: Charge) -> ReleasedMoments | ReleasedMatrices:
        """Everything the model needs."""

    def keep_sums(self) -> None:  # noqa: B027 -- nothing to keep, where there are no rows
        """From here on releases share the exact sums of the first one, where that saves reading rows again."""

    def release_local(self, mu: float, charge: Charge) -> ReleasedMoments:
        """The mean of local reports."""
        raise ValueError("local reports contain only x x^T, from a public number of people")

    def restricted(self, features: NDArray[np.intp], bound: float) -> tuple[Model, Mechanism]:
        """The same for some of the features, rows clipped to ``bound`` after the others are dropped."""
        self._refuse("a release of some features")

    def screen(self, mu: float, charge: Charge) -> Screen:
        """Scores of all features."""
        self._refuse("a screen")

    def products(self, mu: float, noise: ProductNoise, charge: Charge) -> NoisyProducts:
        """Products with A and B."""
        self._refuse("products with vectors")

    def samples(self, wanted: SampledMechanism, target: Target, share_full: float, charge: Charge) -> NoisySamples:
        """Gradients over Poisson samples."""
        self._refuse("samples of people")

    def clipped(self) -> ClippedProducts:
        """Answers about products of each row with directions, clipped one by one."""
        self._refuse("products that are clipped row by row")

    def _refuse(self, purpose: str) -> NoReturn:
        raise ValueError(
            f"{self.kind} contain no rows and cannot provide {purpose}: use method='release' (with "
            "storage='matrix'), or a problem on the rows themselves; nothing was released and no budget was spent"
        )


class OfMatrices(Mechanism):
    kind = "matrices"

    def __init__(self, problem: MatrixProblem, stream: core.NoiseStream) -> None:
        super().__init__(stream)
        self._problem = problem

    def release(self, mu: float, charge: Charge) -> ReleasedMatrices:
        return release_matrices(self._problem, mu, self._stream, charge)

    def restricted(self, features: NDArray[np.intp], bound: float) -> tuple[Model, Mechanism]:
        problem = self._problem.restricted(features, bound)
        return problem.model, OfMatrices(problem, self._stream)

    def screen(self, mu: float, charge: Charge) -> Screen:
        return screen_matrices(self._problem, mu, self._stream, charge)

    def products(self, mu: float, noise: ProductNoise, charge: Charge) -> NoisyProducts:
        return matrix_products(self._problem, mu, noise, self._stream, charge)


class OfSums(Mechanism):
    kind = "summed moments"

    def __init__(self, sums: Moments | MomentProblem, stream: core.NoiseStream) -> None:
        super().__init__(stream)
        self._sums: Moments | MomentProblem | KeptSums = sums

    def release(self, mu: float, charge: Charge) -> ReleasedMoments:
        return release_moments(self._sums, mu, self._stream, charge)

    def release_local(self, mu: float, charge: Charge) -> ReleasedMoments:
        n = self._sums.facts.n
        if self._sums.layout.has_groups or n is None:
            return super().release_local(mu, charge)

        def charge_each(entry: LedgerEntry) -> None:
            charge(replace(entry, query=f"mean of {n} local reports", mu=mu))

        return self.release(mu / math.sqrt(n), charge_each)


class OfRows(OfSums):
    kind = "rows"

    def __init__(self, problem: MomentProblem, stream: core.NoiseStream) -> None:
        super().__init__(problem, stream)
        self._problem = problem

    def keep_sums(self) -> None:
        self._sums = KeptSums(self._problem)

    def restricted(self, features: NDArray[np.intp], bound: float) -> tuple[Model, Mechanism]:
        problem = self._problem.restricted(features, bound)
        return problem.model, OfRows(problem, self._stream)

    def screen(self, mu: float, charge: Charge) -> Screen:
        return screen_rows(self._problem, mu, self._stream, charge)

    def products(self, mu: float, noise: ProductNoise, charge: Charge) -> NoisyProducts:
        return row_products(self._problem, mu, noise, self._stream, charge)

    def samples(self, wanted: SampledMechanism, target: Target, share_full: float, charge: Charge) -> NoisySamples:
        return sampled_products(self._problem, wanted, *target, share_full, self._stream, charge)

    def clipped(self) -> ClippedProducts:
        return ClippedProducts(self._problem, self._stream)


def mechanism_of(problem: Problem, stream: core.NoiseStream) -> Mechanism:
    """The mechanism for this kind of problem."""
    if isinstance(problem, MatrixProblem):
        return OfMatrices(problem, stream)
    if isinstance(problem, MomentProblem):
        return OfRows(problem, stream)
    assert isinstance(problem, Moments)
    return OfSums(problem, stream)


class Curator:
    """Holds a problem's data; answers with noise from ``stream``; pays from ``ledger``.

    A method may read ``public``, with its ``model`` and ``facts``. Every query takes the ``share`` of the
    ledger's mu^2 that it may spend (default: all that is left) and the ``purpose`` shown in the ledger.
    """

    def __init__(self, problem: Problem, ledger: Ledger, stream: core.NoiseStream) -> None:
        self.public = PublicSide.of(problem)
        self.model, self.facts = self.public.model, self.public.facts
        self._mechanism = mechanism_of(problem, stream)
        self._ledger = ledger
        self._stream = stream

    @property
    def noiseless(self) -> bool:
        """Whether epsilon is infinite."""
        return math.isinf(self.remaining)

    @property
    def remaining(self) -> float:
        """The mu that is left."""
        return self._ledger.remaining

    def public_generator(self) -> np.random.Generator:
        """Randomness that need not stay secret, for starting points; reproducible where the noise is seeded."""
        return np.random.default_rng(int.from_bytes(self._stream.bytes(16), "little"))

    def release(self, share: float | None = None, purpose: str = "") -> ReleasedMoments | ReleasedMatrices:
        """Everything the model needs, in one release."""
        return self._mechanism.release(self._affordable(share), self._charge(purpose))

    def keep_sums(self) -> None:
        """Announces several releases of everything: their exact sums are kept, if they are sums of rows."""
        self._mechanism.keep_sums()

    def release_features(
        self, features: NDArray[np.intp], bound: float, share: float | None = None, purpose: str = ""
    ) -> tuple[Model, ReleasedMoments | ReleasedMatrices]:
        """The same for some features only; rows are clipped to a public ``bound`` after dropping the others."""
        mu = self._affordable(share)
        model, mechanism = self._mechanism.restricted(features, bound)
        return model, mechanism.release(mu, self._charge(purpose))

    def release_local(self, share: float | None = None, purpose: str = "") -> ReleasedMoments:
        """The mean of local reports x x^T + Z of all n people, in one draw.

        n independent GOE(s) sum to a GOE(s sqrt(n)): each person spends mu on a report, as if a curator had spent
        mu/sqrt(n). For problems whose moments are x x^T alone, with public n.
        """
        return self._mechanism.release_local(self._affordable(share), self._charge(purpose))

    def screen(self, share: float | None = None, purpose: str = "") -> Screen:
        """Noisy scores of all features."""
        return self._mechanism.screen(self._affordable(share), self._charge(purpose))

    def products(self, noise: ProductNoise, share: float | None = None, purpose: str = "") -> NoisyProducts:
        """Products A V and B V with noise, for blocks V that the method chooses as it goes."""
        return self._mechanism.products(self._affordable(share), noise, self._charge(purpose))

    def affords_clipped_products(self, share: float) -> bool:
        """Whether ``share`` of mu^2 is enough for `clipped_products` and a `product_moment`, and people few enough."""
        return self._mechanism.clipped().affords(self._affordable(share))

    def mean(self, share: float | None = None, purpose: str = "") -> NoisyMean:
        """The mean of the rows, (d,)."""
        return self._mechanism.clipped().mean(self._affordable(share), self._charge(purpose))

    def product_norms(self, asked: Asked, share: float | None = None, purpose: str = "") -> NoisyMean:
        """A histogram of the norms of V^T (x - m)."""
        return self._mechanism.clipped().norms(asked, self._affordable(share), self._charge(purpose))

    def clipped_products(
        self, asked: Asked, thresholds: Thresholds, share: float | None = None, purpose: str = ""
    ) -> NoisyMean:
        """The mean of x clip(V^T (x - m)), (K, d), products clipped to norms of this many bounds: for PCA and PLS."""
        return self._mechanism.clipped().products(asked, thresholds, self._affordable(share), self._charge(purpose))

    def product_moment(
        self, asked: Asked, thresholds: Thresholds, share: float | None = None, purpose: str = ""
    ) -> NoisyMean:
        """The second moment of clip(V^T (x - m)), (K, K); that between two views."""
        return self._mechanism.clipped().moment(asked, thresholds, self._affordable(share), self._charge(purpose))

    def sampling_mu(self) -> float:
        """The Gaussian-DP parameter under add/remove that this run's (epsilon, delta) allows: public, for planning.

        Raises PrivacyBudgetError unless the budget is an (epsilon, delta) for this run alone.
        """
        return add_remove_mu(*self._ledger.whole_target(), self.facts.adjacency)

    def samples(self, mechanism: SampledMechanism, share_full: float, purpose: str = "") -> NoisySamples:
        """Gradients over Poisson samples and all people, for blocks that the method chooses; costs the whole budget.

        Only for models whose A is the second moment of the rows, with n or ``public_n`` known.
        """
        return self._mechanism.samples(mechanism, self._ledger.whole_target(), share_full, self._charge(purpose))

    def _affordable(self, share: float | None) -> float:
        """Gaussian-DP parameter that a query may spend, checked before data is read."""
        return self._ledger.affordable(share)

    def _charge(self, purpose: str) -> Charge:
        def charge(entry: LedgerEntry) -> None:
            self._ledger.record(replace(entry, query=f"{purpose}: {entry.query}") if purpose else entry)

        return charge
