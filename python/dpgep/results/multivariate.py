"""The analysis of variance of several columns at once: whether groups of a release have the same means.

With S_g, c_g the sums and shares of G groups of n people and W the covariance within them, contrasts

    y_k = n^1/2 S P u_k,   P = diag(c)^-1/2 - 1 c^1/2^T/sum c,   P^T P u_k = a_k u_k,

have the covariance W + n a_k N where all means are m, N = s^2 I + t^2 m m^T the noise of sums and shares. So

    Z = [(W + n a_k N)^-1/2 y_k]_k,   Z^T Z/(n - G)

has the law, and without noise the values, of the eigenvalues of E^-1 H that the classical tests are made of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from dpgep._optional import data_frame
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, effective_counts, total_mean, total_share
from dpgep.models.null import spectrum_before_noise
from dpgep.results.classifiers import within_covariance
from dpgep.results.columns import Answer, Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.sources.names import listed

TESTS = ("Wilks' lambda", "Pillai's trace", "Hotelling-Lawley trace", "Roy's greatest root")
# Of the gamma law that Tracy and Widom's first one is near to: shape, scale and shift (Chiani 2014).
_SHAPE, _SCALE, _SHIFT = 46.446, 0.186054, 9.84801


@dataclass(frozen=True, eq=False, repr=False)
class Manova(Answer):
    """Tests of the hypothesis that p columns have the same means in all of G groups, from a release.

    Attributes
    ----------
    groups : (G,), as text.
    names : (p,), of the columns.
    eigenvalues : (min(p, G - 1),), of E^-1 H, with the noise in its denominator.
    values, f, p_values : (4,), of the tests in `TESTS`. p-values count the noise; that of Roy's root, where neither
        two groups nor one column make it exact, is Johnstone's (2008), without an F.
    degrees : (4, 2), degrees of freedom of the F.
    noise_share : the part of the variance of contrasts of means, without differences, that is noise.
    """

    groups: tuple[str, ...]
    names: tuple[str, ...]
    eigenvalues: Matrix
    values: Matrix
    f: Matrix
    degrees: Matrix
    p_values: Matrix
    noise_share: float

    @property
    def t_squared(self) -> float | None:
        """Hotelling's T^2 of two groups, (n - 2) lambda; None of more."""
        return float((self.n_people - 2) * self.eigenvalues[0]) if len(self.groups) == 2 else None

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row for each test: value, F, its degrees of freedom, p-value."""
        columns = {"value": self.values, "F": self.f, "degrees": self.degrees[:, 0], "of error": self.degrees[:, 1]}
        return data_frame({**columns, "p": self.p_values}, list(TESTS))

    def __repr__(self) -> str:
        title = f"Means of {len(self.names)} columns in groups {listed(self.groups)}, {self.n_people:.0f} people"
        lines = [f"  noise     is {self.noise_share:.1%} of the variance of contrasts; p-values count it"]
        if self.t_squared is not None:
            lines.append(f"  Hotelling's T^2  {self.t_squared:.4g}")
        numbers = np.column_stack([self.values, self.f, self.degrees, self.p_values])
        cells = np.where(np.isnan(numbers), "", np.vectorize("{:.4g}".format)(numbers))
        rows = [[name, *row] for name, row in zip(TESTS, cells, strict=True)]
        return self._printed(title, *lines, table=[["", "value", "F", "degrees", "of error", "p"], *rows])


@on_one_thread_of_blas
def manova(release: ReleasedColumns, columns: Columns = None) -> Manova:
    """Whether the groups of a release have the same means of columns: Wilks, Pillai, Hotelling and Lawley, Roy.

    Of two groups all four are Hotelling's T^2 test. Raises ValueError for a release without groups, and for fewer
    people than columns and groups.
    """
    groups = release._group_labels
    features = release._numbers(columns)
    noisy, _ = release._moments_of(features, grouped=True)
    people = noisy.n * total_share(noisy)
    contrasts, covariances, of_noise = _contrasts(noisy, people)
    (p, q), freedom = contrasts.shape, people - len(groups)
    if freedom < p + 2:
        raise ValueError(f"{people:.0f} people are too few for {p} columns and {len(groups)} groups")
    roots = zip(map(np.linalg.cholesky, covariances), contrasts.T, strict=True)
    z = np.column_stack([scipy.linalg.solve_triangular(root, y, lower=True) for root, y in roots])
    values = np.linalg.svd(z, compute_uv=False) ** 2 / freedom
    labels = tuple(map(str, groups)), release._labels_of(features)
    return Manova(*labels, values, *_tests(values, p, q, freedom), of_noise, **release._known(people))


def _contrasts(noisy: ReleasedMoments, people: float) -> tuple[Matrix, list[Matrix], float]:
    """(p, G - 1), contrasts; the covariance of each without differences; and the part of these that is noise.

    Along axes of W in which rows vary.
    """
    counts, share, noise, mean = effective_counts(noisy), total_share(noisy), noisy.noise, total_mean(noisy)
    values, axes = scipy.linalg.eigh(within_covariance(noisy), check_finite=False)
    values = spectrum_before_noise(values[::-1], noise.second / share)[::-1]
    kept = values > noisy.rounding
    values, axes = values[kept] * people / max(people - len(counts), 1.0), axes[:, kept]
    to_contrasts = np.diag(counts**-0.5) - np.outer(np.ones(len(counts)), np.sqrt(counts)) / counts.sum()
    along, u = np.linalg.eigh(to_contrasts.T @ to_contrasts)
    contrasts = math.sqrt(noisy.n) * (axes.T @ noisy.sums @ to_contrasts @ u[:, 1:])
    m = axes.T @ mean
    added = noise.sums**2 * np.eye(len(m)) + noise.counts**2 * np.outer(m, m)
    covariances = [np.diag(values) + noisy.n * size * added for size in along[1:]]
    total = sum(float(np.trace(each)) for each in covariances)
    of_noise = 1 - len(covariances) * float(values.sum()) / total if total > 0 else 0.0
    return contrasts, covariances, of_noise


def _tests(values: Matrix, p: int, q: int, v: float) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Values, F, its degrees of freedom, p-values, of the eigenvalues of E^-1 H; v degrees of freedom of E."""
    from scipy.special import fdtrc, gammaincc

    s, m, n = min(p, q), (abs(p - q) - 1) / 2, (v - p - 1) / 2
    wilks, pillai = float(np.prod(1 / (1 + values))), float(np.sum(values / (1 + values)))
    trace, root = float(values.sum()), float(values[0])
    t = math.sqrt((p * p * q * q - 4) / (p * p + q * q - 5)) if p * p + q * q > 5 else 1.0
    of_wilks = p * q, (v - (p - q + 1) / 2) * t - (p * q - 2) / 2
    of_pillai = s * (2 * m + s + 1), s * (2 * n + s + 1)
    b = (p + 2 * n) * (q + 2 * n) / (2 * (2 * n + 1) * (n - 1)) if n > 1 else math.inf
    of_trace = (p * q, 4 + (p * q + 2) / (b - 1)) if n > 1 else (s * (2 * m + s + 1), 2 * (s * n + 1))
    f = [
        (wilks ** (-1 / t) - 1) * of_wilks[1] / of_wilks[0],
        pillai / (s - pillai) * of_pillai[1] / of_pillai[0],
        trace * (of_trace[1] / of_trace[0] * 2 * n / (of_trace[1] - 2) if n > 1 else of_trace[1] / of_trace[0] / s),
    ]
    degrees = [of_wilks, of_pillai, of_trace]
    p_values = [float(fdtrc(*each, value)) for each, value in zip(degrees, f, strict=True)]
    if s == 1:
        degrees.append((max(p, q), v - max(p, q) + q))
        f.append(root * degrees[-1][1] / degrees[-1][0])
        p_values.append(float(fdtrc(*degrees[-1], f[-1])))
    else:  # Johnstone (2008): the logit of root/(1 + root)
        size = v + q - 1
        gamma, phi = (2 * math.asin(math.sqrt((each - 0.5) / size)) for each in (s, max(p, q)))
        scale = (16 / size**2 / (math.sin(phi + gamma) ** 2 * math.sin(phi) * math.sin(gamma))) ** (1 / 3)
        x = (math.log(max(root, 1e-300)) - 2 * math.log(math.tan((phi + gamma) / 2))) / scale
        degrees.append((math.nan, math.nan))
        f.append(math.nan)
        p_values.append(float(gammaincc(_SHAPE, max(x + _SHIFT, 0.0) / _SCALE)))
    return np.array([wilks, pillai, trace, root]), np.array(f), np.array(degrees), np.array(p_values)
