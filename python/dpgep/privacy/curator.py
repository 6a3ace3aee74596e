"""The curator: the only part that holds data. It answers a query if the ledger can pay, and enters the release.

The noise of each query is in a module of its own beside this one. What a query returns is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.models.model import Model, PublicFacts
from dpgep.models.moments import ReleasedMoments
from dpgep.privacy.ledger import Charge, Ledger, LedgerEntry
from dpgep.privacy.matrix_release import release_matrices
from dpgep.privacy.moment_release import release_moments
from dpgep.privacy.products import NoisyProducts, ProductNoise, matrix_products, row_products
from dpgep.privacy.sampled import SampledMechanism, add_remove_mu
from dpgep.privacy.sampled_products import NoisySamples, sampled_products
from dpgep.privacy.screening import Screen, screen_matrices, screen_rows
from dpgep.problems.gep import MatrixProblem, ReleasedMatrices
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.moment_problem import MomentProblem

Problem = MomentProblem | Moments | MatrixProblem


@dataclass(frozen=True, eq=False)
class PublicSide:
    """What everybody may know of a problem.

    Attributes
    ----------
    model, facts : what is asked, and of how many people within which bound.
    largest_b : an upper bound of the largest eigenvalue of B; None where nothing public gives one.
    """

    model: Model
    facts: PublicFacts
    largest_b: float | None


class Curator:
    """Holds a problem's data; answers with noise from ``stream``; pays from ``ledger``.

    ``public``, and in it ``model`` and ``facts``, are for the method to read. Every query takes the ``share`` of the
    ledger's mu^2 that it may spend (default: all that is left) and the ``purpose`` that the ledger names.
    """

    def __init__(self, problem: Problem, ledger: Ledger, stream: core.NoiseStream) -> None:
        self.public = PublicSide(problem.model, problem.facts, problem.largest_b)
        self._problem = problem
        self._ledger = ledger
        self._stream = stream

    @property
    def model(self) -> Model:
        return self.public.model

    @property
    def facts(self) -> PublicFacts:
        return self.public.facts

    def public_generator(self) -> np.random.Generator:
        """Randomness that need not stay secret, for starting points; reproducible where the noise is seeded."""
        return np.random.default_rng(int.from_bytes(self._stream.bytes(16), "little"))

    def release(self, share: float | None = None, purpose: str = "") -> ReleasedMoments | ReleasedMatrices:
        """Everything the model needs, in one release."""
        return self._release(self._problem, self._affordable(share), purpose)

    def release_features(
        self, features: NDArray[np.intp], bound: float, share: float | None = None, purpose: str = ""
    ) -> tuple[Model, ReleasedMoments | ReleasedMatrices]:
        """The same for some of the features alone, rows clipped to a public ``bound`` after the others are dropped."""
        mu = self._affordable(share)
        problem = self._with_rows("a release of some features").restricted(features, bound)
        return problem.model, self._release(problem, mu, purpose)

    def release_local(self, share: float | None = None, purpose: str = "") -> ReleasedMoments:
        """The mean of local reports x x^T + Z of all n people, in one draw.

        n independent GOE(s) sum to a GOE(s sqrt(n)): each person spends mu on a report, as if a curator had spent
        mu/sqrt(n). For problems whose moments are x x^T alone, with public n.
        """
        mu, problem = self._affordable(share), self._problem
        if isinstance(problem, MatrixProblem) or problem.layout.has_groups or problem.facts.n is None:
            raise ValueError("local reports hold x x^T alone, from a public number of people")
        n = problem.facts.n
        charge = self._charge(purpose)
        return release_moments(
            problem,
            mu / math.sqrt(n),
            self._stream,
            lambda release: charge(replace(release, query=f"mean of {n} local reports", mu=mu)),
        )

    def screen(self, share: float | None = None, purpose: str = "") -> Screen:
        """Noisy scores of all features."""
        mu, charge = self._affordable(share), self._charge(purpose)
        problem = self._with_rows("a screen")
        if isinstance(problem, MatrixProblem):
            return screen_matrices(problem, mu, self._stream, charge)
        return screen_rows(problem, mu, self._stream, charge)

    def products(self, noise: ProductNoise, share: float | None = None, purpose: str = "") -> NoisyProducts:
        """Products A V and B V with noise, for blocks V that the method chooses as it goes."""
        mu, charge = self._affordable(share), self._charge(purpose)
        problem = self._with_rows("products with vectors")
        if isinstance(problem, MatrixProblem):
            return matrix_products(problem, mu, noise, self._stream, charge)
        return row_products(problem, mu, noise, self._stream, charge)

    def sampling_mu(self) -> float:
        """The Gaussian-DP parameter under add/remove that this run's (epsilon, delta) allows: public, to plan by.

        Raises PrivacyBudgetError where the budget is not an (epsilon, delta) of this run alone.
        """
        return add_remove_mu(*self._ledger.whole_target(), self.facts.adjacency)

    def samples(self, mechanism: SampledMechanism, share_full: float, purpose: str = "") -> NoisySamples:
        """Gradients of Poisson samples and of everybody, for blocks that the method chooses: costs the whole budget.

        Serves only a model whose A is the second moment of the rows, with n or ``public_n`` known.
        """
        epsilon, delta = self._ledger.whole_target()
        problem, charge = self._with_rows("samples of people"), self._charge(purpose)
        assert isinstance(problem, MomentProblem)  # methods check the model first
        return sampled_products(problem, mechanism, epsilon, delta, share_full, self._stream, charge)

    def _with_rows(self, purpose: str) -> MomentProblem | MatrixProblem:
        if isinstance(self._problem, Moments):
            raise ValueError(
                f"{purpose} cannot be had from summed moments, which hold no rows: use method='release' (with "
                "storage='matrix'), or a problem of the rows themselves; nothing was released and no budget was spent"
            )
        return self._problem

    def _release(self, problem: Problem, mu: float, purpose: str) -> ReleasedMoments | ReleasedMatrices:
        charge = self._charge(purpose)
        if isinstance(problem, MatrixProblem):
            return release_matrices(problem, mu, self._stream, charge)
        return release_moments(problem, mu, self._stream, charge)

    def _affordable(self, share: float | None) -> float:
        """Gaussian-DP parameter that a query may spend, checked before data is read."""
        mu = self._ledger.portion(share)
        self._ledger.check(mu)
        return mu

    def _charge(self, purpose: str) -> Charge:
        def charge(release: LedgerEntry) -> None:
            self._ledger.record(replace(release, query=f"{purpose}: {release.query}") if purpose else release)

        return charge
