"""A release or a power method on clipped products, whichever the rows favour: ``method="auto"``.

A release for a sixteenth of mu^2 shows the leading block V. A histogram of |V^T (x - m)| tells the variance S along it,
and the part S' that clipping to the median C keeps. With c and c' the same of the other directions, squared sines are
to first order in the noise, in bounds and times d, 1/(n mu (S - c))^2 of a release, and 4 C^2/(n mu (S' - c'))^2 of
clipped products, with what clipping changes in a sample (docs/mathematics.md, section 11). A release is pooled with the
first one: next to nothing is lost. Public numbers decide before where there is nothing to choose.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpgep.methods import clipped_power
from dpgep.methods.base import MethodResult, ReleaseOptions, matrix_bytes
from dpgep.methods.eigen import RANK, semicircle_edge, solve_pair
from dpgep.methods.matrix_free import leading_by_products, operator_release
from dpgep.methods.release import release, solve_released, with_clipping_bias
from dpgep.models.model import Matrix, Model
from dpgep.models.moments import ReleasedGroups, ReleasedMoments, pooled_by_precision
from dpgep.models.row_model import has_own_pencil
from dpgep.privacy.clipped_products import AffordsClippedProducts, Asked, NoisyMean, ProductNorms
from dpgep.privacy.curator import Curator, Release, row_bound

PROBE = "probe"  # what the ledger calls the probe
_PROBE_SHARE = 1 / 16  # share of mu^2 of the probe
# That of the histogram is so large that S, in squared bounds, has noise of this deviation; within limits.
_LOOK_DEVIATION, _LEAST_LOOK, _LARGEST_LOOK = 0.003, 0.005, 0.04
# That deviation times n mu, for all of mu^2: sqrt(2), the noise of each share, times the root of the sum of squared
# norms, squared. And how large it may be at most.
_NOISE_OF_LOOKS, _MOST_NOISE_OF_LOOKS = 1.3 * math.sqrt(2), 0.03
_QUANTILE = 0.5
_FAVOURED = 5.0  # in the place of 4 above: what the probe costs clipped products as well
# Clipped products must promise this part of a release's error at most: rows that are not elliptical add a bias, which
# nothing shows before.
_WORTH = 0.4
# More components than this part of d are not for clipped products: so much variance do they have at least.
_MOST_COMPONENTS = 1 / 8
_MATRICES = 2  # what a probe and a release after it hold at once, in units of what a release alone does
# The edge of a release's noise, 2 b^2 sqrt(d)/(n mu), in units of b^2/d, up to which there is nothing to choose: what
# stands out by one such unit is then found with a squared sine of (0.1/2)^2. And that of a probe, in units of b^2, from
# which on it shows nothing.
_SMALL_NOISE, _LARGE_NOISE = 0.1, 1.0
# Components without variance have others this many times as large beside them, to give a number.
_MOST_UNSEEN = 1e3


def select_method(curator: Curator, n_components: int, options: ReleaseOptions) -> MethodResult:
    """The K leading eigenvectors by the method that a probe favours, by a release where there is nothing to choose."""
    if not _should_probe(curator, n_components, options):
        return replace(release(curator, n_components, options), method="release")
    assert curator.facts.n is not None
    needed = (_NOISE_OF_LOOKS / (_LOOK_DEVIATION * curator.facts.n * curator.remaining)) ** 2
    look_share = min(max(needed, _LEAST_LOOK), _LARGEST_LOOK)
    probe = _probe(curator, n_components, options)
    if not _shows_enough(curator, probe):
        asked = Asked(probe.vectors[:-1], None if probe.mean is None else probe.mean.values)
        answer = curator.answer(ProductNorms(asked), look_share, "look along the probe")
        look = clipped_power.norm_histogram(answer, _QUANTILE, len(asked.vectors))
        warm = clipped_power.WarmStart(probe, look, 1 - _PROBE_SHARE - look_share, look_share)
        if _favours_clipping(curator, probe, look) and (found := clipped_power.resumed(curator, warm)) is not None:
            return replace(_with_unseen(found, probe), method="clipped-power")
    if probe.moments is None:
        return replace(operator_release(curator, n_components, options), method="release")
    rest = curator.answer(Release())  # for all that is left, with the probe
    assert isinstance(rest, ReleasedMoments)
    noisy = curator.model.noisy(pooled_by_precision(probe.moments, rest))
    found = solve_released(noisy, n_components, options)
    found = with_clipping_bias(found, noisy, found.moments, curator.public.preprocessing)
    return replace(found, method="release")


def _shows_enough(curator: Curator, probe: clipped_power.Probe) -> bool:
    """Whether the probe alone favours a release: S' <= C sqrt(S), so that S - c above sqrt(S/5) is enough."""
    k, bound = len(probe.values) - 1, row_bound(curator.facts)
    # eigenvalues exceed those without noise by no more than this edge
    edge, centre = probe.deviation * semicircle_edge(curator.model.n_features), max(probe.centre, 0.0)
    heights = float(np.maximum(probe.values[:-1] - edge - centre, 0.0).sum()) / bound**2
    return _FAVOURED * heights**2 > heights + k * centre / bound**2


def may_favour_clipping(model: Model, k: int, n: int | None, mu: float) -> bool:
    """Whether clipped products may have less error than a release: if its noise is neither small nor hides a probe."""
    d = model.n_features
    if not model.traits.is_covariance or has_own_pencil(model) or k > _MOST_COMPONENTS * d or n is None:
        return False
    edge = 2 * math.sqrt(d) / (n * mu)
    if edge * d <= _SMALL_NOISE or edge >= _LARGE_NOISE * math.sqrt(_PROBE_SHARE):
        return False
    return _NOISE_OF_LOOKS / (n * mu) <= _MOST_NOISE_OF_LOOKS * math.sqrt(_LARGEST_LOOK)


def _should_probe(curator: Curator, k: int, options: ReleaseOptions) -> bool:
    """Whether it is worth a probe which is better; a function of public numbers."""
    public, d = curator.public, curator.model.n_features  # rows that are not in memory would be read many times
    if public.pairwise or not (public.at_hand and options == ReleaseOptions() and options.storage_for(d) == "matrix"):
        return False
    if not may_favour_clipping(public.model, k, public.facts.n, curator.remaining):
        return False
    if _MATRICES * matrix_bytes(d) > options.memory_limit and not options.by_products(curator, k):
        return False
    return curator.answer(AffordsClippedProducts(), clipped_power.LEAST_SHARE / 2)


def _probe(curator: Curator, k: int, options: ReleaseOptions) -> clipped_power.Probe:
    model = curator.model
    if options.by_products(curator, k):
        products, leading = leading_by_products(curator, k + 1, options, _PROBE_SHARE, PROBE)
        deviation = products.noise_level / math.sqrt(2 * model.n_features)
        values = leading.system.values[: k + 1]
        return clipped_power.Probe(
            leading.vectors, values, deviation, _mean(curator, products.groups), leading.centre, None
        )
    curator.keep_sums()
    moments = curator.answer(Release(), _PROBE_SHARE, PROBE)
    assert isinstance(moments, ReleasedMoments)
    pair = model.noisy(replace(moments, second=moments.second.copy())).pair()
    centre = float(np.trace(pair.a)) / len(pair.a)
    system = solve_pair(pair.a, None, regularization=0.0, rounding=pair.rounding, n_vectors=k + 1)
    vectors = np.ascontiguousarray(system.vectors[:, : k + 1].T)
    return clipped_power.Probe(
        vectors, system.values[: k + 1], moments.noise.second, _mean(curator, moments), centre, moments
    )


def _mean(curator: Curator, groups: ReleasedGroups | None) -> NoisyMean | None:
    """The released mean of the rows; None where the model does not shift them."""
    if not curator.model.traits.shift_free or groups is None:
        return None
    return NoisyMean(groups.sums[:, 0], groups.noise.sums, int(groups.n))


def _favours_clipping(curator: Curator, probe: clipped_power.Probe, look: clipped_power.NormHistogram) -> bool:
    """Whether clipped products have less error, from a ``look`` along the probe.

    Not where S is about c, or the last of several directions may be another: a power method ends at any block then.
    """
    k, n, bound = len(probe.values) - 1, curator.facts.n, row_bound(curator.facts)
    assert n is not None
    if k > 1 and probe.values[k - 1] - probe.values[k] <= RANK * probe.deviation:
        return False
    centre = k * max(probe.centre, 0.0) / bound**2
    signal, left = look.variance - centre, look.kept - look.across * centre
    if signal <= RANK * look.deviation or left <= 0:
        return False
    noise = (n * curator.remaining) ** -2
    sampling = clipped_power.sampling_error(np.array([look.variance]), centre, min(look.kept / look.variance, 1.0))[
        0
    ] / (n * k)
    return bool(_FAVOURED * noise * (look.threshold / left) ** 2 + sampling < _WORTH * noise / signal**2)


def _with_unseen(found: MethodResult, probe: clipped_power.Probe) -> MethodResult:
    """The result with the variance that the probe cannot exclude: see `ClippedPowerDiagnostics.unseen`."""
    largest = _largest_beyond(probe, found.components)
    unseen = largest / max(float(found.eigenvalues[-1]), largest / _MOST_UNSEEN)
    warnings = list(found.accuracy_warnings)
    if unseen > 1:
        warnings.append(
            "a direction that few rows have may be missed: the pilot excludes only variances above "
            f'{unseen:.2g} times that of the last component; method="release" weighs all rows alike'
        )
    return found.described({"unseen": unseen}, accuracy_warnings=tuple(warnings))


def _largest_beyond(probe: clipped_power.Probe, components: Matrix) -> float:
    """The largest variance, beyond the span of ``components``, that the probe may not have shown.

    With its leading u_i and values l_i the probe is at most l_{K+1} I + sum_i (l_i - l_{K+1}) u_i u_i^T; so is its
    largest eigenvalue l beyond the span. With c the mean of all variances, a variance c + h there would show at
    c + h + edge^2/(4 h) or above, up to chance (docs/mathematics.md, section 11).
    """
    d, k = components.shape[1], len(components)
    *leading, rest = probe.values
    beyond = probe.vectors[:k] - probe.vectors[:k] @ components.T @ components
    roots = np.sqrt(np.array(leading) - rest)
    largest = rest + float(np.linalg.norm(roots[:, None] * beyond, 2)) ** 2 + RANK * probe.deviation - probe.centre
    edge = probe.deviation * math.sqrt(2 * d)
    height = (largest + math.sqrt(largest**2 - edge**2)) / 2 if largest > edge else edge / 2
    return max(probe.centre, 0.0) + height
