"""One noisy matrix pencil, paid for once, known through its products: `dpgep.release` with ``storage="operator"``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np
import scipy  # its sparse solvers are loaded when they are used

from dpgep._dispatch import core
from dpgep.methods import METHODS
from dpgep.models.model import Matrix
from dpgep.models.preprocessing import Preprocessing
from dpgep.privacy.curator import Curator, Query, Release
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.products import ProductNoise, Products
from dpgep.problems.problem import Problem
from dpgep.reports.report import PrivacyReport
from dpgep.results.solution import Solution, solution_of, warn_of_accuracy


class MatrixFreeRelease:
    """A noisy pencil (A, B) known through its products: what `dpgep.release` with ``storage="operator"`` returns.

    Answers are those of one pair of symmetric matrices, released once: any number of products costs nothing more.
    Noise is drawn on demand and stored, 24 d bytes per new direction (32 d for a private pair of matrices), up to
    ``memory_limit``: a product with a new direction then raises MemoryError. Combinations of earlier directions need no
    memory.

    Threads may share it: their products are serialized. The noise then depends on their order, even with a seed.

    Attributes
    ----------
    a : `scipy.sparse.linalg.LinearOperator` of shape (d, d), symmetric: `matvec`, `matmat`, ``@``.
    b : the same for B + regularization I; None where B is the identity.
    n_features : the dimension d.
    privacy : `PrivacyReport`.
    noise_level : expected operator norm of the noise in B, or in A where B is the identity (deviation x sqrt(2 d)).
    regularization : the multiple of the identity added to B.
    memory_limit : bytes for stored answers.
    preprocessing : the public map of the rows that the matrices are about; None where they are as they were given.
    """

    def __init__(
        self,
        curator: AnsweringCurator,
        privacy: PrivacyReport,
        regularization: float,
        memory_limit: int,
        preprocessing: Preprocessing | None,
    ) -> None:
        products = curator.paid
        self._curator = curator
        self._products = products
        self.n_features: int = products.oracle.n_features
        self.privacy = privacy
        self.noise_level = products.noise_level
        self.regularization = regularization
        self.memory_limit = memory_limit
        self.preprocessing = preprocessing
        # methods, not functions of their own: pickling an operator then says why that cannot be
        self.a = self._operator(self._a_times)
        self.b = None if products.identity_b else self._operator(self._b_times)

    @property
    def n_directions(self) -> int:
        """Number of orthonormal directions queried so far, whose answers are stored."""
        return self._products.oracle.n_directions

    def times(self, block: Any) -> tuple[Matrix, Matrix]:
        """(A V, (B + regularization I) V) for the columns of V, (d, K), in one pass over the data for both."""
        columns = np.asarray(block, dtype=np.float64)
        if columns.ndim != 2 or len(columns) != self.n_features:
            raise ValueError(f"V must have shape ({self.n_features}, K), one vector per column; got {columns.shape}")
        of_a, of_b = self._answers(columns)
        return of_a, of_b + self.regularization * columns

    def solve(self, n_components: int | None = None, *, method: str = "release", **options: Any) -> Solution:
        """Leading solutions by a method that needs only products, at no further cost: the report is the operator's.

        By "release", with ``storage="operator"``, "rayleigh-flow" or "truncated-rayleigh-flow", with lazy noise, and
        their options, as in `dpgep.solve`; default: all components of the model. The ``regularization`` among the
        options is used, not the operator's. Raises ValueError or TypeError if a parameter is out of range, or requires
        more than products (a screen, fresh noise, a convex start), and MemoryError if ``memory_limit`` leaves no
        capacity for new directions.
        """
        chosen = METHODS[method]
        if chosen.by_products is None:
            known = ", ".join(repr(name) for name in sorted(METHODS) if METHODS[name].by_products is not None)
            raise ValueError(f"method must be one that needs only products, {known}; got {method!r}")
        settings, k = chosen.checked({**chosen.by_products, **options}, self._curator.public, n_components)
        try:
            result = chosen.run(self._curator, k, settings)
        except MemoryError as error:
            raise self._full() from error
        passes = self._products.oracle.n_passes
        solution = solution_of(
            result, self.privacy, self._curator.model, method, passes=passes, preprocessing=self.preprocessing
        )
        warn_of_accuracy(result, solution)
        return solution

    def _a_times(self, columns: Matrix) -> Matrix:
        return self._answers(columns)[0]

    def _b_times(self, columns: Matrix) -> Matrix:
        return np.asarray(self._answers(columns)[1] + self.regularization * columns)

    def _answers(self, columns: Matrix) -> tuple[Matrix, Matrix]:
        try:
            of_a, of_b = self._products.times(columns.T)
        except MemoryError as error:
            raise self._full() from error
        return of_a.T, of_b.T

    def _full(self) -> MemoryError:
        return MemoryError(
            f"memory_limit = {self.memory_limit} is exhausted by the answers to {self.n_directions} directions of "
            f"{self.n_features} features: ask for fewer new directions, or release with a larger memory_limit"
        )

    def _operator(self, times: Callable[[Matrix], Matrix]) -> scipy.sparse.linalg.LinearOperator:
        d, vector = self.n_features, partial(_one_column, times)
        return scipy.sparse.linalg.LinearOperator(
            (d, d), matvec=vector, rmatvec=vector, matmat=times, rmatmat=times, dtype=np.dtype(np.float64)
        )

    def __getstate__(self) -> NoReturn:
        raise TypeError("a MatrixFreeRelease cannot be copied or pickled, or copies would differ: keep its products")

    def __repr__(self) -> str:
        regularization = f", regularization {self.regularization:.3g}" if self.regularization else ""
        return (
            f"MatrixFreeRelease(d={self.n_features}, noise level {self.noise_level:.3g}{regularization}, "
            f"{self.n_directions} directions queried; {self.privacy})"
        )


def _one_column(times: Callable[[Matrix], Matrix], v: Matrix) -> Matrix:
    return times(v.reshape(-1, 1)).reshape(v.shape)


class AnsweringCurator(Curator):
    """A curator that has released one pencil, known through its products (``paid``), and answers nothing else."""

    def __init__(self, problem: Problem, ledger: Ledger, stream: core.NoiseStream, memory_limit: int) -> None:
        super().__init__(problem, ledger, stream)
        self.paid = super().answer(Products(ProductNoise("lazy", "goe", 0, memory_limit)))

    def answer(self, query: Query[Any], share: float | None = None, purpose: str = "") -> Any:
        """The products already paid for; ValueError for anything else."""
        if isinstance(query, Products) and query.noise.kind == "lazy":
            return self.paid
        names = ((Products, "fresh noise"), (Release, "a released matrix"))
        asked = next((name for kind, name in names if isinstance(query, kind)), "a further release")
        raise ValueError(f"an operator provides only products of one noisy pencil, not {asked}: use dpgep.solve")
