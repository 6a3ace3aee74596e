"""What is audited: every model of `release` on worst-case neighbours, and the negative controls with their corrections.

A case holds everything `dpgep.auditing.audit` needs. Cases are built by name and afresh, with seeded noise: a result
can be had again. docs/errata.md prints the results; benchmarks/papers/errata_figure.py draws them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import printed_mechanisms as printed
from numpy.typing import NDArray
from printed_mechanisms import Pair

import dpgep
from dpgep._dispatch import core
from dpgep.auditing.statistical import AuditResult, audit, release_statistic
from dpgep.data.integer_moments import IntegerMoments
from dpgep.privacy.accounting import mu_of
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import calibrate_moments
from dpgep.problems.builders import table_problem
from dpgep.problems.problem import MomentProblem

Matrix = NDArray[np.float64]
EPSILON, DELTA = 1.0, 1e-3
MU = mu_of(EPSILON, DELTA)
RHO = 2.0  # of the papers' rho-CDP: all their noise is Gaussian, so mu = sqrt(2 rho)
RUNS = int(os.environ.get("DPGEP_AUDIT_RUNS", "10000"))
# A sound mechanism is flagged with at most this probability in one audit; all audits of the suite together, fewer than
# a hundred, with less than 1e-5 over the choice of seeds, and with fixed seeds either always or never.
CONFIDENCE = 1 - 1e-7


@dataclass(frozen=True)
class Case:
    """One audit: a mechanism, two neighbouring inputs of it, a statistic of its output, and its claim."""

    mechanism: Callable[[Any], Any]
    neighbours: tuple[Any, Any]
    statistic: Callable[[Any], float]
    claim: dict[str, float]
    gaussian: bool = True
    runs: int = RUNS

    def audit(self, runs: int | None = None) -> AuditResult:
        return audit(
            self.mechanism,
            self.neighbours,
            self.statistic,
            runs=self.runs if runs is None else runs,
            confidence=CONFIDENCE,
            gaussian=self.gaussian,
            **self.claim,  # type: ignore[arg-type]
        )


# --- release ---------------------------------------------------------------------------------------------------------


def unit(*entries: float) -> Matrix:
    return np.array(entries)


def obtuse(t: float, d: int = 3) -> tuple[Matrix, Matrix]:
    """Two unit rows whose inner product is -t."""
    first, second = np.zeros((2, d))
    first[0] = 1.0
    second[:2] = -t, math.sqrt(1 - t * t)
    return first, second


def people(row: Matrix, n: int = 24) -> Matrix:
    """Rows in the ball, n of them, of which the last is the one that differs."""
    others = np.random.default_rng(7).standard_normal((n - 1, len(row)))
    return np.vstack([others / np.linalg.norm(others, axis=1).max(), row])


def tight(problem: Any) -> float:
    """Minus the inner product of the worst two unit rows of one group: s1^2/(2 s2^2) (docs/mathematics.md)."""
    noise = calibrate_moments(MU, problem.layout, problem.facts.adjacency)
    return float(min(1.0, noise.second**2 / (2 * noise.sums**2)))


def classes(last: int, n: int = 24) -> NDArray[np.intp]:
    return np.append(np.arange(n - 1) % 3, last)


def both(build: Callable[[Matrix], Any], rows: tuple[Matrix, Matrix]) -> tuple[Any, Any]:
    return build(people(rows[0])), build(people(rows[1]))


def without_last(build: Callable[..., Any], *columns: Any) -> tuple[Any, Any]:
    """The problem with all people, and without the last one."""
    return build(*columns), build(*(column[:-1] for column in columns))


E1, E2 = unit(1.0, 0.0, 0.0), unit(0.0, 1.0, 0.0)


def _pca_one_group() -> tuple[Any, Any]:
    return both(partial(dpgep.pca, bound=1.0), obtuse(tight(dpgep.pca(people(E1), bound=1.0))))


def _joint_cca(**options: Any) -> Callable[[Matrix], Any]:
    return lambda rows: dpgep.cca(rows[:, :1], rows[:, 1:], bound=1.0, **options)


def _fda(rows: tuple[Matrix, Matrix], labels: tuple[int, int]) -> tuple[Any, Any]:
    first, second = (
        dpgep.fda(people(x), classes(c), classes=[0, 1, 2], bound=1.0) for x, c in zip(rows, labels, strict=True)
    )
    return first, second


def _sir(rows: tuple[Matrix, Matrix], slices: tuple[int, int]) -> tuple[Any, Any]:
    first, second = (
        dpgep.sir(people(x), classes(c) + 0.5, slices=3, y_range=(0, 3), bound=1.0)
        for x, c in zip(rows, slices, strict=True)
    )
    return first, second


def _grouped_table(rows: tuple[Matrix, Matrix], groups: tuple[int, int]) -> tuple[Any, Any]:
    """People of groups 0, 1 and 2;."""
    first, second = (
        table_problem(people(x), classes(c), classes=[0, 1, 2], bound=1.0) for x, c in zip(rows, groups, strict=True)
    )
    return first, second


def _gep() -> tuple[Any, Any]:
    n, a, b = 50, np.diag([3.0, 2.0, 1.0]), np.eye(3)
    step_a, step_b = np.zeros((2, 3, 3))
    step_a[0, 0] = 2.0 / n
    step_b[0, 1] = step_b[1, 0] = 3.0 / n / math.sqrt(2)
    first, second = (
        dpgep.gep(a + k * step_a, b + k * step_b, n=n, sensitivity_a=2.0, sensitivity_b=3.0) for k in (0, 1)
    )
    return first, second


def _removed_fda(public_n: int | None) -> tuple[Any, Any]:
    def build(x: Matrix, labels: NDArray[np.intp]) -> Any:
        return dpgep.fda(x, labels, classes=[0, 1, 2], adjacency="add-remove", public_n=public_n, bound=1.0)

    return without_last(build, people(E1), classes(1))


def _removed_from_table() -> tuple[Any, Any]:
    def build(x: Matrix, y: Matrix) -> Any:
        return table_problem(x, y, slices=3, y_range=(0, 3), adjacency="add-remove", bound=1.0)

    return without_last(build, people(E1), classes(1) + 0.5)


def _removed_sir() -> tuple[Any, Any]:
    def build(x: Matrix, y: Matrix) -> Any:
        return dpgep.sir(x, y, slices=3, y_range=(0, 3), adjacency="add-remove", bound=1.0)

    return without_last(build, people(E1), classes(1) + 0.5)


def _removed(build: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    return without_last(lambda rows: build(rows, adjacency="add-remove", bound=1.0, **options), people(E1))


def _removed_cca(**options: Any) -> tuple[Any, Any]:
    return without_last(_joint_cca(adjacency="add-remove", **options), people(E1))


RELEASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "pca, uncentred": lambda: both(lambda rows: dpgep.pca(rows, center=False, bound=1.0), (E1, E2)),
    "pca, uncentred, bound 3": lambda: both(lambda rows: dpgep.pca(7 * rows, center=False, bound=3.0), (E1, E2)),
    "pca, centred": _pca_one_group,
    "cca, uncentred": lambda: both(_joint_cca(center=False), (E1, E2)),
    "cca, centred": lambda: both(_joint_cca(), obtuse(tight(_joint_cca()(people(E1))))),
    "fda, class changes": lambda: _fda((E1, E2), (0, 1)),
    "fda, same class": lambda: _fda(obtuse(tight(_fda((E1, E1), (0, 0))[0])), (0, 0)),
    "sir, slice changes": lambda: _sir((E1, E2), (0, 1)),
    "sir, same slice": lambda: _sir(obtuse(tight(_sir((E1, E1), (0, 0))[0])), (0, 0)),
    "table": lambda: both(partial(table_problem, bound=1.0), obtuse(tight(table_problem(people(E1), bound=1.0)))),
    "table, group changes": lambda: _grouped_table((E1, E2), (0, 1)),
    "table, same group": lambda: _grouped_table(obtuse(tight(_grouped_table((E1, E1), (0, 0))[0])), (0, 0)),
    "gep": _gep,
    "pca, uncentred, one less": lambda: _removed(dpgep.pca, center=False),
    "pca, centred, one less": lambda: _removed(dpgep.pca),
    "pca, centred, one less, public n": lambda: _removed(dpgep.pca, public_n=24),
    "cca, uncentred, one less": lambda: _removed_cca(center=False),
    "cca, centred, one less": lambda: _removed_cca(),
    "fda, one less": lambda: _removed_fda(None),
    "fda, one less, public n": lambda: _removed_fda(24),
    "sir, one less": _removed_sir,
    "table, one less": lambda: _removed(table_problem),
    "table of groups, one less": _removed_from_table,
}


def _stream(name: str) -> core.NoiseStream:
    return core.NoiseStream(name.encode()[:32].ljust(32, b"."))


def summed_once(problem: MomentProblem) -> MomentProblem:
    """A problem of rows that is released many times: its exact sums do not depend on the noise and are made once."""
    sums_of = cache(problem.integer_moments)

    def integer_moments(bits: int) -> IntegerMoments:
        sums = sums_of(bits)
        # a release adds its noise in place
        return replace(sums, second=sums.second.copy(), sums=sums.sums.copy(), counts=sums.counts.copy())

    copy = replace(problem)
    vars(copy)["integer_moments"] = integer_moments
    return copy


def release_case(name: str) -> Case:
    """The release of a model at epsilon = 1, with the log-likelihood ratio of everything released."""
    problems = RELEASES[name]()
    stream = _stream(name)
    return Case(
        lambda problem: Curator(problem, Ledger(MU), stream).answer(Release()),
        problems if name == "gep" else (summed_once(problems[0]), summed_once(problems[1])),
        release_statistic(*problems),
        {"mu": MU, "delta": DELTA},
    )


def _package(name: str, problems: tuple[Any, Any], claim: dict[str, float], mu: float) -> Case:
    stream = _stream(name)
    return Case(
        lambda problem: Curator(problem, Ledger(mu), stream).answer(Release()),
        problems,
        release_statistic(*problems),
        claim,
    )


# --- negative controls: (as printed, corrected) ----------------------------------------------------------------------


def hu_pair() -> tuple[tuple[Matrix, NDArray[np.intp]], tuple[Matrix, NDArray[np.intp]]]:
    x, labels = np.zeros((400, 2)), np.repeat([0, 1], 200)
    x[0, 0], x[1:200, 0], x[200:, 1] = 1.0, -1.0, -1.0
    x_prime, labels_prime = x.copy(), labels.copy()
    x_prime[0], labels_prime[0] = [0.0, 1.0], 1
    return (x, labels), (x_prime, labels_prime)


def _pair_statistic(first: Pair, second: Pair, c1: float, c2: float) -> Callable[[tuple[Matrix, Matrix]], float]:
    """Log-likelihood ratio, up to scale, of matrices whose upper triangles carry noise proportional to c1 and c2."""
    a = np.triu(second.a - first.a) / c1**2
    b = np.triu(second.b - first.b) / c2**2 if c2 else np.zeros_like(a)

    def statistic(released: tuple[Matrix, Matrix]) -> float:
        sums = [matrices.sum(axis=0) if matrices.ndim == 3 else matrices for matrices in released]
        return float(np.vdot(a, sums[0]) + np.vdot(b, sums[1]))

    return statistic


def _initial_vector(c1: float, c2: float, share: float, seed: int) -> Case:
    first, second = (printed.hu_fda(*data) for data in hu_pair())
    rng = np.random.default_rng(seed)
    return Case(
        lambda pair: printed.printed_initial_vector_release(pair, c1=c1, c2=c2, rho=RHO * share, rng=rng),
        (first, second),
        _pair_statistic(first, second, c1, c2),
        {"mu": math.sqrt(2 * RHO), "delta": DELTA},
        runs=20_000,
    )


def _flow(pairs: tuple[Pair, Pair], c1: float, c2: float, seed: int, iterations: int = 3) -> Case:
    rng = np.random.default_rng(seed)
    return Case(
        lambda pair: printed.printed_rayleigh_flow_releases(
            pair, c1=c1, c2=c2, rho=RHO, iterations=iterations, rng=rng
        ),
        pairs,
        _pair_statistic(*pairs, c1, c2),
        {"mu": math.sqrt(2 * RHO), "delta": DELTA},
        runs=20_000,
    )


def _flow_fda(c1: float, c2: float, seed: int) -> Case:
    first, second = (printed.hu_fda(*data) for data in hu_pair())
    return _flow((first, second), c1, c2, seed)


def _flow_pca(c1: float, seed: int) -> Case:
    x = np.zeros((100, 2))
    x[:, 0] = 1.0
    x_prime = x.copy()
    x_prime[0, 0] = -1.0
    return _flow((printed.centred_pca(x), printed.centred_pca(x_prime)), c1, 0.0, seed)


def _largest_norm(clipped: bool) -> Case:
    x = np.zeros((500, 2))
    x[:, 0] = 1.0
    x_prime = x.copy()
    x_prime[0, 0] = 10.0
    rng, deviation = np.random.default_rng(11), math.sqrt(2) / (500 * MU)
    if clipped:
        claim = {"epsilon": EPSILON, "delta": DELTA}
        bounded = [dpgep.pca(rows, center=False, bound=10.0) for rows in (x, x_prime)]
        return _package("bound", (bounded[0], bounded[1]), claim, MU)
    return Case(
        lambda rows: printed.printed_largest_norm_scaling(rows, deviation=deviation, rng=rng),
        (x, x_prime),
        lambda matrix: float(matrix[0, 0]),
        {"epsilon": EPSILON, "delta": DELTA},
        runs=2000,
    )


def _uncentred(rows: Matrix) -> Any:
    return dpgep.pca(rows, center=False, bound=1.0)


def _local(factor: float, epsilon: float, seed: int, runs: int = 60_000) -> Case:
    rng, delta = np.random.default_rng(seed), 1e-5
    return Case(
        lambda row: printed.printed_local_record(row, epsilon=epsilon / factor, delta=delta, rng=rng),
        (unit(1.0, 0.0), unit(0.0, 1.0)),
        lambda matrix: float(matrix[1, 1] - matrix[0, 0]),
        {"epsilon": epsilon, "delta": delta},
        runs=runs,
    )


def chen_pair() -> tuple[Pair, Pair]:
    x, labels = people(unit(1.0, 0.0), 100), np.arange(100) % 2
    x_prime = x.copy()
    x_prime[-1] = 0.0, 1.0
    return printed.chen_fda(x, labels), printed.chen_fda(x_prime, labels)


XI = 0.01
WITHIN, BETWEEN = 4 * math.sqrt(2), 8.0  # sensitivities times n where labels may change (docs/mathematics.md)


def _eigenvalue_attack(pairs: tuple[Pair, Pair]) -> Callable[[Any], float]:
    """Whether an exact eigenvalue 1/s^2 - xi, s a singular value of the output, fits the first B or the second."""

    def statistic(output: Any) -> float:
        directions, singular, _ = np.linalg.svd(output[0] if isinstance(output, tuple) else output)
        u, value = directions[:, 0], singular[0] ** -2 - XI
        first, second = (abs(value - float(u @ pair.b @ u)) for pair in pairs)
        return math.log((first + 1e-300) / (second + 1e-300))

    return statistic


def _dpsr_eigenvalues(correct: bool) -> Case:
    pairs, rng = chen_pair(), np.random.default_rng(21)
    claim = {"epsilon": EPSILON, "delta": DELTA}
    if correct:
        n = pairs[0].n

        def mechanism(pair: Pair) -> Any:
            return printed.corrected_dpsr(
                pair, sensitivity_a=BETWEEN / n, sensitivity_b=WITHIN / n, mu=MU, xi=XI, iterations=3, rng=rng
            )

    else:

        def mechanism(pair: Pair) -> Any:
            return printed.printed_dpsr(
                pair, c1=2 * WITHIN, c2=2 * BETWEEN, epsilon=EPSILON, delta=DELTA, xi=XI, iterations=3, rng=rng
            )

    return Case(mechanism, pairs, _eigenvalue_attack(pairs), claim, gaussian=False, runs=2000)


def _dpsr_gradient(correct: bool) -> Case:
    n, m, rng = 1000, 3 if correct else 15, np.random.default_rng(22)
    x, labels = np.repeat([1.0, -1.0], n // 2)[:, None], np.repeat([0, 1], n // 2)
    x_prime = x.copy()
    x_prime[0] = -1.0
    pairs = printed.chen_fda(x, labels), printed.chen_fda(x_prime, labels)
    claim = {"epsilon": EPSILON, "delta": DELTA}
    if not correct:
        return Case(
            lambda pair: printed.printed_dpsr_gradients(
                pair, c2=2 * BETWEEN, epsilon=EPSILON, delta=DELTA, xi=XI, iterations=m, rng=rng
            ),
            pairs,
            lambda gradients: float(gradients.sum()),
            claim,
            runs=4000,
        )
    return Case(
        lambda pair: printed.corrected_dpsr(
            pair, sensitivity_a=BETWEEN / n, sensitivity_b=WITHIN / n, mu=MU, xi=XI, iterations=m, rng=rng
        )[1],
        pairs,
        _one_dimensional_dpsr(pairs, m),
        claim,
    )


def _one_dimensional_dpsr(pairs: tuple[Pair, Pair], m: int) -> Callable[[list[Matrix]], float]:
    """Log-likelihood ratio, up to scale, of the gradients of `corrected_dpsr` in one dimension.

    Those of the first loop are 2 B plus noise; of the second, times the noisy eigenvalue + xi, 2 A plus noise. (A QR
    factor of one number is 1, whatever its sign.)
    """
    weight_a = (pairs[1].a - pairs[0].a)[0, 0] / BETWEEN**2
    weight_b = (pairs[1].b - pairs[0].b)[0, 0] / WITHIN**2

    def statistic(gradients: list[Matrix]) -> float:
        b, a = ([gradient[0, 0] for gradient in loop] for loop in (gradients[:m], gradients[m:]))
        return float(weight_b * sum(b) + weight_a * (max(b[-1] / 2, 0.0) + XI) * sum(a))

    return statistic


def _vrpca(correct: bool) -> Case:
    n, delta = 2000, 1e-3  # T = n, step 1/n and delta as in the paper's experiments
    deviation = printed.printed_vrpca_deviation(n, n, EPSILON, delta)
    if correct:
        # no help from sampling: n gradients, each moved by at most 2 + 1/n
        deviation = (2 + 1 / n) * math.sqrt(n) / mu_of(EPSILON, delta)
    method = printed.VarianceReduction(n, n, deviation, 1 / n, start=0.7)
    runs = 4000 if not correct else 1000
    sources = [method.transcripts(flag, 250, np.random.default_rng(seed)) for flag, seed in ((False, 31), (True, 32))]
    return Case(
        next,
        (sources[0], sources[1]),
        method.log_likelihood_ratio,
        {"epsilon": EPSILON, "delta": delta},
        gaussian=False,
        runs=runs,
    )


def quantile_data(n: int = 24, slices: int = 6) -> tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]]:
    """Slices of alternating sign, each of whose lowest person has the other sign; the lowest of all goes to the top."""
    size = n // slices
    signs = (-1.0) ** np.arange(slices)
    x = np.repeat(signs, size)
    x[::size] = -signs
    y = np.arange(n) / n
    x_prime, y_prime = x.copy(), y.copy()
    x_prime[0], y_prime[0] = signs[-1], 1.0
    return (x[:, None], y), (x_prime[:, None], y_prime)


def _quantiles(correct: bool) -> Case:
    data, data_prime = quantile_data()
    claim = {"epsilon": EPSILON, "delta": DELTA}
    if correct:

        def build(x: Matrix, y: Matrix) -> Any:
            return dpgep.sir(x, y, slices=6, y_range=(0.0, 1.0), bound=1.0)

        return _package("public edges", (build(*data), build(*data_prime)), claim, MU)
    rng, deviation = np.random.default_rng(41), WITHIN / (24 * MU)
    return Case(
        lambda rows: printed.printed_quantile_within_scatter(*rows, slices=6, deviation=deviation, rng=rng),
        (data, data_prime),
        lambda matrix: float(matrix[0, 0]),
        claim,
        runs=8000,
    )


def _off_diagonal(correct: bool) -> Case:
    n, root = 24, math.sqrt(0.5)
    rows = [np.vstack([np.zeros((n - 1, 2)), [[root, sign * root]]]) for sign in (1.0, -1.0)]
    deviation = math.sqrt(2) / (n * MU)  # so that the entry (1, 2), which moves by 1/n, must show mu = sqrt(2)/(n s)
    claim = {"mu": MU, "delta": DELTA}
    if correct:
        case = _package("off-diagonal", (_uncentred(rows[0]), _uncentred(rows[1])), claim, MU)
        return Case(case.mechanism, case.neighbours, lambda released: float(released.second[0, 1]), claim)
    rng = np.random.default_rng(51)
    return Case(
        lambda second: printed.twice_averaged_release(second, deviation=deviation, rng=rng),
        (rows[0].T @ rows[0] / n, rows[1].T @ rows[1] / n),
        lambda matrix: float(matrix[0, 1]),
        claim,
    )


SOUND_HU = (WITHIN, 3 * math.sqrt(2))

CONTROLS: dict[str, Callable[[], Case]] = {
    "initial vector counts twice": lambda: _initial_vector(*SOUND_HU, 1.0, 1),
    "initial vector, printed constants": lambda: _initial_vector(4.0, 7.0, 1.0, 2),
    "flow, swapped FDA constants": lambda: _flow_fda(4.0, 7.0, 3),
    "flow, centred PCA with C = 1": lambda: _flow_pca(1.0, 4),
    "largest-norm scaling": lambda: _largest_norm(clipped=False),
    "DPSR, exact eigenvalues": lambda: _dpsr_eigenvalues(correct=False),
    "DPSR, second gradient": lambda: _dpsr_gradient(correct=False),
    "local mechanism without sqrt 2": lambda: _local(1.0, 2.0, 5),
    "DP-VRPCA": lambda: _vrpca(correct=False),
    "quantile slices": lambda: _quantiles(correct=False),
    "off-diagonal averaged twice": lambda: _off_diagonal(correct=False),
}

CORRECTED: dict[str, Callable[[], Case]] = {
    "initial vector counts twice": lambda: _initial_vector(*SOUND_HU, 0.5, 6),
    "initial vector, printed constants": lambda: _package(
        "one release",
        tuple(dpgep.fda(*data, classes="public", bound=1.0) for data in hu_pair()),  # type: ignore[arg-type]
        {"mu": math.sqrt(2 * RHO), "delta": DELTA},
        math.sqrt(2 * RHO),
    ),
    "flow, swapped FDA constants": lambda: _flow_fda(*SOUND_HU, 7),
    "flow, centred PCA with C = 1": lambda: _flow_pca(4.0, 8),
    "largest-norm scaling": lambda: _largest_norm(clipped=True),
    "DPSR, exact eigenvalues": lambda: _dpsr_eigenvalues(correct=True),
    "DPSR, second gradient": lambda: _dpsr_gradient(correct=True),
    "local mechanism without sqrt 2": lambda: _local(math.sqrt(2), 2.0, 9),
    "DP-VRPCA": lambda: _vrpca(correct=True),
    "quantile slices": lambda: _quantiles(correct=True),
    "off-diagonal averaged twice": lambda: _off_diagonal(correct=True),
}


def local_below_the_threshold() -> Case:
    """The printed local mechanism at epsilon = 0.25, where its loose calibration hides the missing factor."""
    return _local(1.0, 0.25, 10)
