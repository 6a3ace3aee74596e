"""`release`: one private release of everything the model needs, all else post-processing.

The released matrix is held in memory, or known by its products where it is too large; or a screen chooses features, and
their block is released.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import scipy  # its sparse matrices are loaded when they are used
from numpy.typing import NDArray

from dpgep._checks import unchecked
from dpgep._threads import lapack_on_one_thread
from dpgep.methods import base, eigen
from dpgep.methods.base import MethodResult, PairOptions, ReleaseOptions
from dpgep.methods.clipping_bias import turn_by_clipping
from dpgep.methods.eigen import Accuracy, Eigensystem
from dpgep.methods.matrix_free import operator_release
from dpgep.methods.ridge import Ridge, public_ridge, released_ridge
from dpgep.methods.sparse import SparseFit, sparse_solution
from dpgep.models.model import Matrix, MatrixPencil, NoisyPencil, Standardization
from dpgep.models.moments import ReleasedMoments, paired
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.redundant import Redundancy, reduced
from dpgep.models.row_model import MomentsPencil, pencil_in_units
from dpgep.privacy.curator import Curator, FeatureRelease, LocalReports, Release
from dpgep.privacy.screening import Screened, keep_features
from dpgep.serialization import stored_as

SCREEN_SHARE = 0.3  # share of mu^2 for the scores of a screen: a public constant
MOST_FEATURES = 200  # released moments of at most this many features are kept with a solution
_CLEAR = 2.0  # noise levels below which it is not sure without draws that a component is no noise
_MOST_LISTED = 10  # columns named in a warning
_CLIPPED_UNSAID = 1 / 3  # without noise, a larger share of clipped rows is warned of
_MUCH_CUT = 0.3  # more than this of the columns' variances, where entries were cut off, is warned of
# And, where entries are not cut off, more than this that was lost: in all, and by each clipped row, in mean squares.
_LEAST_LOST, _LONG_ROWS = 0.02, 1.5


@stored_as("release")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ReleaseDiagnostics(base.Diagnostics):
    """What the released values say about their own accuracy. Nothing here costs privacy.

    The expected errors come from a simulation of the known noise, which runs when they are first asked for (where B
    carries noise, with the choice of the ridge), and hold the ridge's bias.

    Attributes
    ----------
    rank : number of directions in which B + xi I is positive; the others were left out.
    support : the features that a sparse solution uses, ascending; None for a dense one.
    screened : what a screen kept: ``features``, and the ``bound`` of their block; None without a screen. Everything
        else here is about the block alone, but for the expected errors: what the screen is expected to have missed
        is in them.
    scale : (d,), what standardized columns were divided by, 0 for a constant one; None where they were not.
    left_out : sums of the indicators of a categorical column, which are 1 for everybody who has a listed category: in
        words, and only where the release shows no variance. Components have no part along them.
    storage : "matrix".
    """

    rank: int
    spectrum: Matrix = field()  # always known: no default, as the base has
    support: tuple[int, ...] | None = None
    screened: Screened | None = None
    scale: Matrix | None = None
    left_out: tuple[str, ...] = ()
    storage: str = "matrix"

    def summary(self) -> list[str]:
        lines = [f"  storage      {self.storage}"]
        if self.screened is not None:
            kept = self.screened
            lines.append(f"  screen       {len(kept.features)} features kept, rows clipped to {kept.bound:.3g}")
        if self.support is not None:
            lines.append(f"  features     {len(self.support)} in use")
        lines.extend(f"  left out     {each}, which is 1 for everybody" for each in self.left_out)
        return lines


def release(curator: Curator, n_components: int, options: ReleaseOptions) -> MethodResult:
    """One noisy release, then the K leading eigenvectors of A v = lambda (B_+ + xi I) v, dense or sparse."""
    if options.screen is not None:  # scores of all features, then a release of the best alone; zeros elsewhere
        share = SCREEN_SHARE if options.screen_share is None else options.screen_share
        kept, _ = keep_features(curator, options.screen, share, "screen")
        model, block = curator.answer(FeatureRelease(kept.features, kept.bound), purpose="features kept")
        of_block = solve_released(model.noisy(block), n_components, options)
        result = _embedded(of_block, kept.features, curator.model.n_features)
        return result.described({"screened": kept, "accuracy": result.diagnostics.accuracy.after_screen(kept.missed)})
    if options.by_products(curator, n_components):
        return operator_release(curator, n_components, options)
    redundant = Redundancy.of(curator.model, curator.public.preprocessing) if curator.model.indicators else None
    released = curator.answer(Release())
    noisy = pencil_in_units(curator.model, released, curator.public.preprocessing)
    found = solve_released(noisy, n_components, options, redundant)
    if isinstance(released, ReleasedMoments) and released.mark is not None and found.moments is not None:
        found = unchecked(found, moments=released)  # with marks: the pairs follow from them
    return with_clipping_bias(found, noisy, found.moments, curator.public.preprocessing)


def with_clipping_bias(
    result: MethodResult, noisy: NoisyPencil, clipped: ReleasedMoments | None, preprocessing: Preprocessing | None
) -> MethodResult:
    """The result of a pencil, whose expected errors count clipping as well, if any is known."""
    found = result.diagnostics
    if clipped is None or result.moments is None or preprocessing is None or not isinstance(noisy, MomentsPencil):
        return result
    exact = preprocessing.variance_error is None or not (np.any(preprocessing.variance_error) or clipped.noise.second)
    if preprocessing.energy_kept == 1 and exact:  # without noise nothing is clipped: it is holes that lessen variances
        return result
    moments, support = result.moments, getattr(found, "support", None)

    def turn() -> tuple[Matrix, float]:
        pencil, shown = replace(noisy, released=paired(moments)), preprocessing.shown_by(clipped)
        return turn_by_clipping(pencil, paired(clipped), shown, found.regularization, len(found.lost), support)

    said = [*result.accuracy_warnings]
    # where a few people hold much of the variance, in directions that the release does not show
    cut, lost = preprocessing.energy_cut / len(clipped.second.T), 1 / preprocessing.energy_kept - 1
    if cut > _MUCH_CUT:
        said.append(
            f"entries beyond {preprocessing.largest:.3g} deviations, which were cut off, hold {cut:.0%} as much "
            "variance as all else, in unknown columns: errors may be several times as large. Logarithms or ranks help"
        )
    in_units = preprocessing.scale is None or preprocessing.variance is not None
    if in_units and lost > max(_LONG_ROWS * preprocessing.rows_clipped, _LEAST_LOST):
        said.append(
            f"clipping {preprocessing.rows_clipped:.1%} of the rows took {1 - preprocessing.energy_kept:.0%} of all "
            "variance, and few long rows may hold more: errors may be several times as large. Logarithms or ranks help"
        )
    return result.described({"accuracy": found.accuracy.biased(turn)}, accuracy_warnings=tuple(said))


def local_gaussian(curator: Curator, n_components: int, options: PairOptions) -> MethodResult:
    """K leading eigenvectors of the mean of n local reports, drawn at once: Wang and Xu (2020), Algorithm 1.

    So a choice between the local and the central model needs no clients. The ledger is charged what each would spend.
    """
    return solve_released(curator.model.noisy(curator.answer(LocalReports())), n_components, options)


def _embedded(result: MethodResult, features: NDArray[np.intp], d: int) -> MethodResult:
    """The result for some of d features as one for all; without the moments, as questions are of all features."""
    support = getattr(result.diagnostics, "support", None)
    return result.described(
        {"support": None if support is None else tuple(features[list(support)].tolist())},
        components=eigen.embedded(result.components, features, d),
        mean=None if result.mean is None else eigen.embedded(result.mean[None, :], features, d)[0],
        moments=None,
    )


def solve_released(
    noisy: NoisyPencil, n_components: int, options: PairOptions, redundant: Redundancy | None = None
) -> MethodResult:
    """All that follows from the one answer: post-processing. Dense components have no part along ``redundant``."""
    standard, moments, released = noisy.standardization, None, noisy.released
    if isinstance(released, ReleasedMoments) and released.second.shape[-1] <= MOST_FEATURES:
        moments = unchecked(released, second=released.second.copy())  # for later questions: solving overwrites them
    smaller = None if redundant is None or options.sparsity is not None else reduced(noisy, redundant)
    if smaller is not None:  # in coordinates that are orthogonal to directions without variance
        solved = _solved(smaller.noisy, min(n_components, smaller.noisy.model.max_components), options)
        components = base.oriented(solved.components @ smaller.basis.T)
        solved = solved.described({"left_out": smaller.left_out}, components=components, mean=noisy.mean)
    elif standard is None:
        solved = _solved(noisy, n_components, options)
    else:
        solved = _standardized(noisy, standard, n_components, options)
        moments = moments if standard.scale.all() else None
    return unchecked(solved, moments=moments)


def _standardized(
    noisy: NoisyPencil, standard: Standardization, n_components: int, options: PairOptions
) -> MethodResult:
    """The solution in standardized coordinates, of the columns that are not constant, in the units of the columns."""
    served = np.flatnonzero(standard.scale)
    if not len(served):
        raise np.linalg.LinAlgError("every column is constant: there are no correlations")
    if isinstance(options.sparsity, int):
        options = replace(options, sparsity=min(options.sparsity, len(served)))
    model, k, d = noisy.model, min(n_components, len(served)), noisy.model.n_features
    of_served = noisy
    if len(served) < d:
        of_served = replace(noisy, model=model.restricted(served), released=noisy.released.restricted(served))
    solved = _solved(of_served, k, options)
    if len(served) < d:
        solved = _embedded(solved, served, d)
    units = np.divide(1, standard.scale, out=np.zeros(d), where=standard.scale > 0)
    # which columns cannot be standardized follows from released variances
    said, names, drowned = [*solved.accuracy_warnings], model.feature_names, standard.drowned & (standard.scale > 0)
    if len(served) < d:
        fewer = f", which leaves {len(served)} of {n_components} components" if len(served) < n_components else ""
        said.append(f"{columns_are(np.flatnonzero(standard.scale == 0), names)} constant, without any weight{fewer}")
    if drowned.any():
        said.append(
            f"{columns_are(np.flatnonzero(drowned), names)} constant, or lost in the noise of variances: weights there "
            "are too small, and the expected errors do not cover that"
        )
    described, components = {"scale": standard.scale}, solved.components * units
    return solved.described(described, components=components, mean=noisy.mean, accuracy_warnings=tuple(said))


def columns_are(columns: NDArray[np.intp], names: tuple[str, ...] | None) -> str:
    """Their names or numbers as the subject of a sentence, and its verb."""
    one = len(columns) == 1
    listed = ", ".join(str(j) if names is None else repr(names[j]) for j in columns[:_MOST_LISTED])
    listed += f" and {len(columns) - _MOST_LISTED} more" if len(columns) > _MOST_LISTED else ""
    return f"{'column' if one else 'columns'} {listed} {'is' if one else 'are'}"


def _solved(noisy: NoisyPencil, n_components: int, options: PairOptions) -> MethodResult:
    """The leading solutions of the released pair."""
    with lapack_on_one_thread(noisy.model.n_features):
        xi, ridge, fallback, fit = 0.0, None, 0.0, None
        noise = noisy.noise_of_b
        if noise is not None:
            sparse = options.sparsity is not None
            xi, ridge = released_ridge(noisy, n_components, noise, options.regularization, sparse=sparse)
            fallback = public_ridge(noise)
        pair = noisy.pair()
        solve = partial(eigen.solve_pair, regularization=xi, rounding=pair.rounding, fallback=fallback)
        if options.sparsity is None:
            n_vectors = eigen.rows_needed(n_components, len(pair.a)) if noisy.isotropic else None
            system = solve(pair.a, pair.b, n_vectors=n_vectors, low_rank=pair.low_rank)
            k = min(n_components, len(system.values))
            if k == 0:
                raise np.linalg.LinAlgError("B is numerically zero: no direction to solve for; pass regularization > 0")
            vectors, eigenvalues = system.vectors[:, :k].T, system.values[:k].copy()
        else:
            unit = scipy.sparse.eye_array(len(pair.a), format="csr")
            fit = sparse_solution(
                pair,
                options.sparsity,
                n_components,
                ridge=xi,
                separate_supports=options.separate_supports,
                residual_deviation=lambda v, values: np.sqrt(noisy.error_variances(unit, v.T, values)),
                views=noisy.model.views,
            )
            vectors, eigenvalues = fit.vectors, fit.eigenvalues
            features = np.array(base.support_of(vectors))  # all solutions on these, as vectors of full length
            corner = np.ix_(features, features)
            small = solve(pair.a[corner], None if pair.b is None else pair.b[corner])
            full = np.zeros((len(pair.a), small.vectors.shape[1]))
            full[features] = small.vectors
            system = replace(small, vectors=full)
        diagnostics = _diagnose(noisy, pair, system, eigenvalues, fit, ridge)
        d = noisy.model.n_features if diagnostics.support is None else len(diagnostics.support)
        said = [*singular_warning(diagnostics.rank, d, n_components)]
        used, clipped = system.regularization, noisy.released.clipped
        if used != xi:
            said.insert(
                0, f"the noisy B has no positive eigenvalue: regularization {used:.3g} was used instead of {xi:.3g}"
            )
        if clipped > _CLIPPED_UNSAID:  # only without noise, where it costs nothing to know
            said.append(
                f"{clipped:.0%} of the rows exceed the bound and were clipped to it: this is not the analysis of the "
                "original rows; give a bound that holds for them (private runs also clip, but may not report it)"
            )
        found = base.method_result(noisy.model, noisy.released, vectors, eigenvalues, diagnostics, said, n_searched=d)
        return found if noisy.isotropic else unchecked(found, mean=noisy.mean)  # in units of the columns


def singular_warning(rank: int, d: int, asked: int) -> Iterator[str]:
    """Where B has fewer directions than features."""
    if rank < d:
        fewer = f", which leaves {rank} of {asked} components" if rank < asked else ""
        yield (
            f"B is singular: rank {rank} of {d}; the problem was solved on its range{fewer} (pass regularization > 0 "
            "to use all directions)"
        )


def _diagnose(
    noisy: NoisyPencil,
    pair: MatrixPencil,
    system: Eigensystem,
    eigenvalues: Matrix,
    fit: SparseFit | None,
    ridge: Ridge | None,
) -> ReleaseDiagnostics:
    k, d, rank = len(eigenvalues), len(pair.a), len(system.values)
    support = None if fit is None else base.support_of(fit.vectors)
    log_searched = 0.0 if support is None else eigen.log_supports(d, len(support))
    if fit is not None and fit.significant is not None:
        lost = tuple(not significant for significant in fit.significant)
    else:
        may_defer = fit is None and d <= MOST_FEATURES and eigenvalues[-1] > _CLEAR * pair.noise_level
        lost, edge = eigen.judged_components(noisy, system, k, log_searched, may_defer=may_defer)
    edge = edge if fit is None else None
    if ridge is not None:
        accuracy = eigen.accuracy_given(ridge.error, ridge.subspace_error, lost, rank, edge)
    else:  # by the noise in the eigenbasis of the released pair; nothing there is biased but by the noise
        variances = partial(_variances, noisy, pair.noise_level, system, k)
        found, dimensions = partial(eigen.expected_accuracy, system.values), rank if fit is None else d
        if d > MOST_FEATURES:  # they are found now, so that no d x d matrix is kept for them
            accuracy = Accuracy.deferred(partial(found, variances(), lost, dimensions), lost, edge)
        else:
            accuracy = Accuracy.deferred(lambda: found(variances(), lost, dimensions), lost, edge)
    if fit is not None:
        accuracy = accuracy.worsened(_misplaced(noisy, pair, system, fit))
    gaps = np.abs(eigenvalues[:, None] - system.values)
    np.fill_diagonal(gaps, np.inf)  # a component has no gap to itself
    return ReleaseDiagnostics(
        noise_level=pair.noise_level,
        regularization=system.regularization,
        accuracy=accuracy,
        eigengaps=gaps.min(axis=1, initial=np.inf),
        rank=rank,
        spectrum=system.values.copy(),
        support=support,
    )


def _variances(noisy: NoisyPencil, noise_level: float, system: Eigensystem, k: int) -> Matrix:
    """(p, r), those of the noise in the entries between the p leading solutions that k of them need and all r."""
    r = len(system.values)
    p = eigen.rows_needed(k, r)
    leading, values = system.vectors[:, :p], system.values[:p]
    if system.vectors.shape[1] == r:
        variances = noisy.error_variances(system.vectors, leading, values)
    else:
        # of unknown vectors of an orthonormal basis: what coordinates have in all, and known ones have not, in the mean
        variances = noisy.error_variances(leading, leading, values)
        unit = scipy.sparse.eye_array(len(leading), format="csr")
        in_all = noisy.error_variances(unit, leading, values).sum(axis=1)
        rest = (in_all - variances.sum(axis=1)) / (r - p)
        variances = np.hstack([variances, np.tile(rest[:, None], r - p)])
    if system.regularization == 0:
        return variances
    # times the share of a solution's squared norm, 1 in B + xi I, that is no contribution of xi: variance of nobody
    squares = np.einsum("ij,ij->j", system.vectors, system.vectors)
    deviation = noise_level / math.sqrt(2 * len(system.vectors))
    return np.asarray(variances * np.clip(1 - system.regularization * squares, deviation * squares, 1.0))


def _misplaced(noisy: NoisyPencil, pair: MatrixPencil, system: Eigensystem, fit: SparseFit) -> Matrix:
    """(K,), share of each sparse component on features that noise may have put in the place of others."""
    if noisy.released.noiseless:
        return np.zeros(len(fit.vectors))
    d, features = len(pair.a), list(base.support_of(fit.vectors))
    coordinates = scipy.sparse.eye_array(d, format="csc")[:, features]
    others = system.values[len(fit.eigenvalues) :]
    centre = eigen.null_eigenvalue(noisy.model, others) if len(others) else 0.0
    diagonal = 1.0 if pair.b is None else np.maximum(np.diagonal(pair.b)[features] + system.regularization, 1e-300)
    deviations = np.sqrt(noisy.error_variances(coordinates, fit.vectors.T, fit.eigenvalues)) / diagonal
    heights = np.abs(fit.eigenvalues - centre)[:, None]
    entries = np.abs(fit.vectors[:, features])
    # What the best of d entries of noise may reach says nothing about its feature: its square is counted twice, for
    # what is there and for what is missing.
    doubtful = entries * heights < (math.sqrt(2 * math.log(d)) + 1) * deviations
    return np.asarray(np.minimum(2 * (entries**2 * doubtful).sum(axis=1), 1.0))
