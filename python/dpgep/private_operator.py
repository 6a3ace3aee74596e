"""`dpgep.private_operator`: one noisy pair of matrices, paid for once, known by its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from dpgep.methods.options import require_non_negative
from dpgep.methods.storage import MEMORY_LIMIT, require_memory_limit, require_room
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator, Problem
from dpgep.privacy.products import NoisyProducts, ProductNoise
from dpgep.privacy.streams import noise_stream
from dpgep.solution import PrivacyReport
from dpgep.solve import budget_of, privacy_report, require_problem, warn_large_delta

Matrix = NDArray[np.float64]


class PrivateOperator:
    """A noisy pair (A, B) known by its products: what `private_operator` returns.

    Answers are those of one pair of symmetric matrices, released once: however many products are asked, nothing more is
    spent. Their noise is drawn as they are asked for and remembered, 24 d bytes for each new direction (32 d for a
    private pair of matrices), until ``memory_limit``: then a product with a new direction raises MemoryError. One with
    a combination of directions asked before costs no memory.

    Threads may share it: their products take turns. The noise then depends on their order, also with a seed.

    Attributes
    ----------
    a : `scipy.sparse.linalg.LinearOperator` of shape (d, d), symmetric: `matvec`, `matmat`, ``@``.
    b : the same for B + regularization I; None where B is the identity.
    privacy : `PrivacyReport`.
    noise_level : expected operator norm of the noise in B, or in A where B is the identity (deviation x sqrt(2 d)).
    regularization : the multiple of the identity added to B.
    memory_limit : bytes for remembered answers.
    """

    def __init__(
        self, products: NoisyProducts, privacy: PrivacyReport, regularization: float, memory_limit: int
    ) -> None:
        self._products = products
        self.privacy = privacy
        self.noise_level = products.noise_level
        self.regularization = regularization
        self.memory_limit = memory_limit
        self.a = self._operator(self._a_times)
        self.b = None if products.identity_b else self._operator(self._b_times)

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return self._products.oracle.n_features

    @property
    def n_directions(self) -> int:
        """Number of orthonormal directions asked so far, whose answers are remembered."""
        return self._products.oracle.n_directions

    def times(self, block: Any) -> tuple[Matrix, Matrix]:
        """(A V, (B + regularization I) V) for the columns of V, (d, K), in one pass over the data for both."""
        columns = np.asarray(block, dtype=np.float64)
        if columns.ndim != 2 or len(columns) != self.n_features:
            raise ValueError(
                f"V must have shape ({self.n_features}, K), one vector in each column; got {columns.shape}"
            )
        of_a, of_b = self._answers(columns)
        return of_a, of_b + self.regularization * columns

    def _a_times(self, columns: Matrix) -> Matrix:
        return self._answers(columns)[0]

    def _b_times(self, columns: Matrix) -> Matrix:
        return np.asarray(self._answers(columns)[1] + self.regularization * columns)

    def _answers(self, columns: Matrix) -> tuple[Matrix, Matrix]:
        try:
            of_a, of_b = self._products.times(columns.T)
        except MemoryError as error:
            raise MemoryError(
                f"the answers to {self.n_directions} directions of {self.n_features} features are all that fit into "
                f"memory_limit = {self.memory_limit}: ask fewer new directions (a smaller block, fewer iterations), or "
                "make the operator with a larger memory_limit"
            ) from error
        return of_a.T, of_b.T

    def _operator(self, times: Callable[[Matrix], Matrix]) -> LinearOperator:
        d = self.n_features

        def matvec(v: Matrix) -> Matrix:
            return times(v.reshape(d, 1)).reshape(v.shape)

        return LinearOperator(
            (d, d), matvec=matvec, rmatvec=matvec, matmat=times, rmatmat=times, dtype=np.dtype(np.float64)
        )

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a PrivateOperator cannot be copied or pickled: two copies would draw different noise for answers that "
            "were paid for once; share it between threads, or keep its products"
        )

    def __repr__(self) -> str:
        regularization = f", regularization {self.regularization:.3g}" if self.regularization else ""
        return (
            f"PrivateOperator(d={self.n_features}, noise level {self.noise_level:.3g}{regularization}, "
            f"{self.n_directions} directions asked; {self.privacy})"
        )


def private_operator(
    problem: Problem,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    budget: Budget | None = None,
    share: float | None = None,
    accounting: Accounting = "gdp",
    regularization: float | None = None,
    memory_limit: int = MEMORY_LIMIT,
    seed: int | None = None,
) -> PrivateOperator:
    """One release of the problem's matrices, known by its products: for eigensolvers of any kind, at any dimension.

    The pair A~ = A + noise, B~ = B + noise has the law of what ``method="release"`` releases (up to the rounding of
    floating point), but no d x d matrix is formed. The budget is charged here, once.

    Parameters
    ----------
    problem : from `dpgep.pca`, `cca`, `fda`, `sir` or `gep`
        The data, which must not change while the operator is used.
    epsilon, delta, rho, mu, budget, share, accounting
        The budget, as in `dpgep.solve`.
    regularization : float, optional
        Multiple of the identity added to B, >= 0, in the units of B, not chosen by looking at the data. Default: the
        known noise level, which makes the noisy B positive definite. Not used where B is the identity.
    memory_limit : int
        Bytes for remembered answers, 24 d for each direction asked (32 d for a private pair of matrices). Default
        4 GiB.
    seed : int, optional
        As in `dpgep.solve`.

    Returns
    -------
    PrivateOperator

    Raises
    ------
    PrivacyBudgetError
        If the budget cannot pay, before data is read.
    ValueError, TypeError
        If a parameter is out of range, the data contain NaN or infinities, or ``memory_limit`` has no room for a few
        products: nothing is spent.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> from scipy.sparse.linalg import eigsh
    >>> X = np.random.default_rng(0).standard_normal((20000, 50)) * np.r_[5, np.ones(49)] / 15
    >>> operator = dpgep.private_operator(dpgep.pca(X), epsilon=1.0, delta=1e-6)
    >>> values, vectors = eigsh(operator.a, k=1, which="LA")
    >>> bool(abs(vectors[0, 0]) > 0.99)
    True
    """
    require_problem(problem)
    require_memory_limit(memory_limit)
    if regularization is not None:
        require_non_negative("regularization", regularization)
    account = budget_of(budget, share, accounting, epsilon=epsilon, delta=delta, rho=rho, mu=mu)
    warn_large_delta(account, problem.facts.n, stacklevel=3)
    stream = noise_stream(seed, stacklevel=2)
    with account.reserve(share) as ledger:
        curator = Curator(problem, ledger, stream)
        require_room(curator.public, 1, memory_limit)
        products = curator.products(ProductNoise("lazy", "goe", 0, memory_limit))
        report = privacy_report(problem.facts, account, ledger, seeded=seed is not None)
    ridge = products.noise_level if regularization is None else float(regularization)
    return PrivateOperator(products, report, 0.0 if products.identity_b else ridge, memory_limit)
