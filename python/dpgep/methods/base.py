"""What a method hands to the solution: components, what is known of their accuracy, and what to warn of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dpgep._show import Shown
from dpgep.methods.accuracy import Accuracy
from dpgep.models.model import Matrix, Model, Released
from dpgep.models.moments import ReleasedGroups, ReleasedMoments

# Fewer are said to be few.
_PEOPLE_PER_FEATURE = 10


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Diagnostics(Shown):
    """What the released values say about their own accuracy. Nothing in it costs privacy.

    Attributes
    ----------
    noise_level : expected operator norm of the noise in B, or in A where B is the identity (deviation x sqrt(2 d)); of
        the noise in one answer, where products are asked for.
    regularization : the multiple of the identity added to B (0 where B is the identity).
    accuracy : the expected errors; the three properties below.
    eigengaps : (K,), distance of each eigenvalue to its nearest neighbour in the spectrum; None where the method does
        not find all of the spectrum.
    spectrum : all eigenvalues of the released problem, descending, in the units of the rows as they were mapped; for a
        sparse solution, of its restriction to the features in use. None where the method does not find all of it.
    noise_edge : (K,), the eigenvalue that noise alone hardly exceeds, in the place of each component, in the units of
        the solution's eigenvalues: one that does not exceed it is `lost`. None of sparse components, without noise, and
        where the spectrum is None.
    """

    noise_level: float
    regularization: float = 0.0
    accuracy: Accuracy
    eigengaps: Matrix | None = None
    spectrum: Matrix | None = None
    noise_edge: Matrix | None = None

    @property
    def expected_error(self) -> Matrix:
        """(K,), expected squared sine of the angle between each component and the one without noise.

        In the norm of B, from the known law of the noise; 1 where it is lost (docs/mathematics.md, section 5).
        """
        return self.accuracy.errors

    @property
    def expected_subspace_error(self) -> float:
        """The same for the span of all K components: expected squared sines, summed, between 0 and K."""
        return self.accuracy.span

    @property
    def lost(self) -> tuple[bool, ...]:
        """(K,), whether noise alone could produce each component, with a probability above 1/200."""
        return self.accuracy.lost

    def summary(self) -> list[str]:
        """Lines on how the method went, above the table of the components."""
        return []

    def table(self, eigenvalues: Matrix) -> list[str]:
        """Lines for the solution's printed form: the summary, a heading, and a line for each component."""
        gaps = self.eigengaps
        heading = "    k  eigenvalue" + ("" if gaps is None else "     eigengap") + "  expected error (squared sine)"
        lines = [*self.summary(), heading]
        for row, (value, error, lost) in enumerate(zip(eigenvalues, self.expected_error, self.lost, strict=True)):
            gap = "" if gaps is None else f"   {gaps[row]:10.3g}"
            why = " (lost: noise alone could produce it)" if lost else ""
            lines.append(f"  {row + 1:3d}  {value:10.4g}{gap}  {error:.2g}{why}")
        return lines


@dataclass(frozen=True, eq=False)
class MethodResult:
    """Components (K, d), eigenvalues (K,), the mean; ``accuracy_warnings`` become warnings once the solution exists.

    They are not raised here: an error filter must not lose an answer that is paid for. ``moments``: what was released,
    where it is small enough to be kept. ``method``: which one it was, where that was left open.
    """

    components: Matrix
    eigenvalues: Matrix
    mean: Matrix | None
    diagnostics: Diagnostics
    accuracy_warnings: tuple[str, ...]
    moments: ReleasedMoments | None = None
    method: str | None = None


def method_result(
    model: Model,
    released: Released | ReleasedGroups | None,
    vectors: Matrix,
    eigenvalues: Matrix,
    diagnostics: Diagnostics,
    accuracy_warnings: Iterable[str],
    n_searched: int | None = None,
) -> MethodResult:
    """Unit components and the mean in ``released``; warnings of the method, and those that every method has.

    ``n_searched`` is the number of features searched for components; default, all.
    """
    searched = model.n_features if n_searched is None else n_searched
    return MethodResult(
        components=oriented(vectors),
        eigenvalues=eigenvalues,
        mean=None if released is None else model.mean(released),
        diagnostics=diagnostics,
        accuracy_warnings=(
            *accuracy_warnings,
            *_lost_warning(diagnostics.lost, searched, released.n if isinstance(released, ReleasedGroups) else None),
            *_beyond_warning(model, eigenvalues),
        ),
    )


def oriented(rows: Matrix) -> Matrix:
    """Unit rows whose largest entry is positive: eigenvectors have no sign of their own."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    largest = unit[np.arange(len(unit)), np.abs(unit).argmax(axis=1)]
    return np.ascontiguousarray(unit * np.sign(largest)[:, None])


def support_of(vectors: Matrix) -> tuple[int, ...]:
    """The features that any of the rows uses, ascending."""
    return tuple(np.flatnonzero(vectors.any(axis=0)).tolist())


def singular_warning(rank: int, d: int, asked: int) -> Iterator[str]:
    """Where B has fewer directions than features."""
    if rank < d:
        fewer = f", which leaves {rank} of {asked} components" if rank < asked else ""
        yield (
            f"B is singular: rank {rank} of {d}; the problem was solved on its range{fewer} (pass regularization > 0 "
            "to use all directions)"
        )


def _lost_warning(lost: tuple[bool, ...], n_searched: int, n: float | None) -> Iterator[str]:
    """Where components are lost: not of the last ones, where all that there are were asked for."""
    if any(lost) and (lost[0] or len(lost) < n_searched):
        which = [row + 1 for row, gone in enumerate(lost) if gone]
        is_few = n is not None and n < _PEOPLE_PER_FEATURE * n_searched
        few = f", and {n:.0f} people are few for {n_searched} features" if is_few else ""
        yield (
            f"components {which} are lost: noise alone could produce them{few}; use more rows, fewer features, or a "
            "larger budget"
        )


def _beyond_warning(model: Model, eigenvalues: Matrix) -> Iterator[str]:
    """Where noise has made more of an eigenvalue than it can be."""
    beyond = [f"{value:.3g}" for value in eigenvalues if value > model.largest_eigenvalue * (1 + 1e-9)]
    if beyond:
        yield (
            f"eigenvalues {', '.join(beyond)} exceed {model.largest_eigenvalue:g}, their upper limit: "
            "noise in the covariances caused this; use more rows, fewer features, a larger budget or regularization"
        )
