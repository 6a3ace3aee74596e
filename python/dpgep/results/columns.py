"""The columns of a release of moments: their names and numbers, and the moments that questions about them need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import did_you_mean, quoted, whole_number
from dpgep._show import aligned
from dpgep._threads import lapack_on_one_thread
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, in_one_group, of_group, of_groups, together
from dpgep.models.preprocessing import Preprocessing, unclipped
from dpgep.models.row_model import Classes, RowModel
from dpgep.privacy.ledger import IN_OCTAVES, IN_PLACES, NORMS
from dpgep.reports.report import PrivacyReport
from dpgep.results.intervals import warn_of_clipping
from dpgep.results.solution import warn_of_scales
from dpgep.sources.names import listed

# Deviations of the noise of a histogram of norms that people must exceed to be seen in it.
_HIDDEN = 3.0
# From this part of noise on it is said that a test shows little; the level of tests of which that is said of clipping.
_HIDING, _LEVEL = 0.8, 0.05
# Names or numbers of columns; None: all.
Columns: TypeAlias = Sequence[str | int] | NDArray[Any] | None
# Moments of mapped rows, and how these were mapped.
Mapped: TypeAlias = tuple[ReleasedMoments, Preprocessing | None]

Asked = ParamSpec("Asked")
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedColumns:
    """Released moments of rows, and what questions need to know of their columns. A `Release` is asked."""

    model: RowModel
    privacy: PrivacyReport
    _noisy: ReleasedMoments
    _sources: frozenset[str]
    preprocessing: Preprocessing | None = None

    @property
    def n_people(self) -> float:
        """Number of people used for normalization: public, or a released noisy count.

        Of people with weights, their released total weight, in people of the largest.
        """
        return self._noisy.n

    @property
    def fingerprint(self) -> str:
        """A name of this release: of the SHA-256 of what was released. Reports of its answers hold it."""
        if self.privacy.release is not None:  # one group of it
            return self.privacy.release
        noisy = self._noisy
        digest = hashlib.sha256()
        for block in (noisy.second, noisy.sums, noisy.counts):
            digest.update(np.ascontiguousarray(block).data)
        return digest.hexdigest()[:12]

    @property
    def report(self) -> PrivacyReport:
        """What all answers from this release cost together, however many: the price of the release, which it names."""
        return replace(self.privacy, release=self.fingerprint)

    @property
    def _unseen(self) -> tuple[float, float] | None:
        """Bought scales at which entries were cut, and how many people beyond the noise of norms may hide; or None."""
        found, norms = self.preprocessing, [each for each in self.privacy.releases if each.query == NORMS]
        if found is None or found.scale is None or not norms or found.largest >= Preprocessing.largest:
            return None
        return found.largest, _HIDDEN * sum(block.deviation for block in norms[-1].noise)

    def _quantiles(self, features: NDArray[np.intp], share: float, level: float) -> Matrix:
        """(d, 3), quantiles of columns and intervals; NaN where no histogram of these people was bought."""
        found = None
        if self.preprocessing is not None and {IN_OCTAVES, IN_PLACES} & {e.query for e in self.privacy.releases}:
            found = self.preprocessing.restricted(features).quantiles(share, level)
        return np.tile([np.nan, -np.inf, np.inf], (len(features), 1)) if found is None else found

    def _numbers(self, columns: Columns, what: str = "columns") -> NDArray[np.intp]:
        """The numbers of columns, in their order; the name of a categorical column stands for its indicators.

        Raises ValueError or TypeError for unknown ones, none, or one twice.
        """
        if not self._noisy.sums.size:
            raise ValueError(f"this release of {self.model.name} has no mean: ask columns of dpgep.release(X, ...)")
        if self.preprocessing is not None and self.preprocessing.mixes_columns:
            raise ValueError(
                'precondition="full" has mixed the columns of this release, which only answers solve(): release with '
                'precondition="columns" to ask for columns'
            )
        if columns is None:
            return np.arange(self.model.n_features)
        given = columns.tolist() if hasattr(columns, "tolist") else columns  # an array, an index or a series of pandas
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
            raise TypeError(f"{what} must be a list of names or numbers of columns, got {columns!r}")
        names, categories, numbers = self.model.feature_names or (), self._categories, list[int]()
        for column in given:
            group = categories.get(column) if isinstance(column, str) and column not in names else None
            found = group or (self._number(column, categories),)
            twice = next((number for number in found if number in numbers), None)
            if twice is not None:
                raise ValueError(f"{what} have {quoted(names[twice] if names else twice)} twice")
            numbers.extend(found)
        if not numbers:
            raise ValueError(f"{what} must have at least one column")
        return np.array(numbers, dtype=np.intp)

    def _number(self, column: Hashable, others: Iterable[str] = ()) -> int:
        """The number of one column; ``others``: what else could have been meant."""
        names, count = self.model.feature_names or (), self.model.n_features
        number = whole_number(column)
        if isinstance(column, str):
            number = names.index(column) if column in names else None
        if number is None or not 0 <= number < count:
            meant = did_you_mean(column, (*names, *others))
            known = listed(names) if names else f"0 to {count - 1}"
            raise ValueError(f"there is no column {quoted(column)}{meant}: the released columns are {known}")
        if isinstance(column, str) and names.count(column) > 1:
            raise ValueError(f"both views have a column {quoted(column)}: give its number")
        return number

    def _regressed(self, y: str | int, on: Columns) -> tuple[int, list[int]]:
        """The numbers of y and of the columns that it is regressed on: all others by default."""
        target = self._number(y)
        columns = [j for j in self._numbers(on, "on").tolist() if on is not None or j != target]
        if target in columns:
            raise ValueError(f"column {quoted(y)} cannot be regressed on itself")
        if not columns:
            raise ValueError(f"column {quoted(y)} is the only one of this release: there is nothing to regress it on")
        return target, columns

    @property
    def _categories(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the indicators of each categorical column, by its name.

        Indicators are named column=category. What a column was called that has "=" in its name, or whose categories
        have, does not follow: all that it may have been called lead to it, unless they are another's.
        """
        names, found = self.model.feature_names or (), dict[str, tuple[int, ...]]()
        heads = [(_heads([names[j] for j in group]), group) for group in self.model.indicators if names]
        for part in (slice(-1, None), slice(-1)):  # the longest first
            claimed = dict[str, tuple[int, ...]]()
            for columns, group in heads:
                for column in columns[part]:
                    claimed[column] = () if column in claimed else group  # of two views, neither
            found = {**claimed, **found}
        return found

    def _names_of(self, features: NDArray[np.intp]) -> tuple[str, ...] | None:
        names = self.model.feature_names
        return None if names is None else tuple(names[j] for j in features)

    def _dates_of(self, features: NDArray[np.intp]) -> tuple[int, ...]:
        """The places of dates among some features."""
        return tuple(np.flatnonzero(np.isin(features, self.model._dates)).tolist())

    def _labels_of(self, features: NDArray[np.intp]) -> tuple[str, ...]:
        """Names of features, or their numbers as text."""
        return self._names_of(features) or tuple(map(str, features.tolist()))

    def _known(self, n_people: float | None = None) -> dict[str, Any]:
        """What every `Answer` says."""
        n = self.n_people if n_people is None else n_people
        return {"n_people": n, "privacy": self.report, "absent": self._absent}

    def _known_of(self, features: NDArray[np.intp]) -> dict[str, Any]:
        """And any matrix of columns."""
        return {"names": self._names_of(features), "unseen": self._unseen, **self._known()}

    def _indicators_of(self, features: NDArray[np.intp]) -> tuple[tuple[int, ...], ...]:
        """The indicators of each categorical column that are all among some features."""
        places = {feature: place for place, feature in enumerate(features.tolist())}
        return tuple(tuple(places[j] for j in group) for group in self.model.indicators if places.keys() >= set(group))

    def _independent(self, features: NDArray[np.intp]) -> tuple[NDArray[np.intp], tuple[str, ...]]:
        """Some features without the first indicator of each category whose indicators are all there, and its name."""
        first = [group[0] for group in self._indicators_of(features)]
        names = self._labels_of(features)
        return np.delete(features, first), tuple(names[j] for j in first)

    def _require_independent(self, features: NDArray[np.intp]) -> None:
        names = self._names_of(features)
        for group in self._indicators_of(features):
            which = listed([j if names is None else names[j] for j in group])
            raise ValueError(f"{which} are all indicators of a column, and determine each other: leave one out")

    @property
    def _absent(self) -> bool:
        """Whether absent values count as their column's location."""
        return self.preprocessing is not None and self.preprocessing.missing and not self.preprocessing.pairwise

    @property
    def _row_bound(self) -> float:
        assert self.privacy.bound is not None
        return self.privacy.bound

    def _classes(self) -> tuple[Any, ...]:
        if not isinstance(self.model.grouping, Classes):
            raise ValueError("this release has no classes: use dpgep.release(X, labels=...), or release dpgep.fda")
        return self.model.grouping.labels

    @property
    def _group_labels(self) -> tuple[Any, ...]:
        """The classes, or the numbers of the slices."""
        if self.model.grouping is None:
            raise ValueError("this release has no groups: use dpgep.release(X, labels=...), or y= and edges=")
        return self._classes() if isinstance(self.model.grouping, Classes) else tuple(range(len(self._noisy.counts)))

    def _number_of_group(self, group: Hashable) -> int:
        if not self._noisy.by_group:
            raise ValueError("this release is not by group: use dpgep.release(X, labels, by_group=True)")
        labels = self._group_labels
        if group not in labels:
            raise ValueError(f"there is no group {quoted(group)}: the released ones are {listed(labels)}")
        return labels.index(group)

    def _moments_of(self, features: NDArray[np.intp], *, grouped: bool = False) -> Mapped:
        """Moments of some columns, to be overwritten, and how they were mapped; of all groups together by default."""
        noisy, preprocessing = (together(self._noisy), self.preprocessing) if grouped else self._of_everybody
        return noisy.restricted(features), None if preprocessing is None else preprocessing.restricted(features)

    def _groups_alone(self, labels: Sequence[Hashable], features: NDArray[np.intp], *, restored: bool = True) -> Mapped:
        """Moments of some columns by group, of some of the groups: as they were released, or before the clipping."""
        numbers = [self._number_of_group(label) for label in labels]
        noisy = (self._groups_unclipped if restored else self._noisy).restricted(features)
        if len(set(numbers)) < 2:
            raise ValueError(f"two different groups are needed, got {listed(labels)}")
        part = replace(noisy, second=noisy.second[numbers], sums=noisy.sums[:, numbers], counts=noisy.counts[numbers])
        return part, None if self.preprocessing is None else self.preprocessing.restricted(features)

    def _of_group(self, number: int) -> Mapped:
        """Moments of the people of a group, as a release of nobody else has them."""
        mapped = None if self.preprocessing is None else self.preprocessing.of_others()  # variances are of everybody
        return of_group(self._noisy, number), mapped

    @cached_property
    def _groups_unclipped(self) -> ReleasedMoments:
        """Moments by group, before the clipping of their rows."""
        alone = [
            unclipped(*self._of_group(number), self.model.indicators)[0] for number in range(len(self._noisy.counts))
        ]
        return of_groups(alone, self._noisy)

    def _judged(self, features: NDArray[np.intp], *, sizes: bool = True, held: bool = True) -> Mapped:
        """The same of everybody for an answer with intervals, with warnings of scales and of clipping."""
        noisy, preprocessing = self._moments_of(features)
        warn_of_scales(preprocessing, self._labels_of(features), self)
        warn_of_clipping(noisy, self._labels_of(features), sizes=sizes, held=held)
        return noisy, preprocessing

    @cached_property
    def _of_everybody(self) -> Mapped:
        return unclipped(in_one_group(self._noisy), self.preprocessing, self.model.indicators)


def of_unseen(unseen: tuple[float, float] | None, label: str, what: str) -> list[str]:
    """The line of a printed answer that says what none of its intervals can know; see `ReleasedColumns._unseen`."""
    if unseen is None or not unseen[1]:
        return []
    cut, people = unseen
    shown = f"cut at {cut:.3g} scales; up to {people:.0f} people beyond would not show"
    return [label + shown + f": {what} may lie outside" * bool(what)]


def of_hidden(test: str, of: Sequence[str], noise_share: Any, p_values: Any, most_p_values: Any) -> list[str]:
    """Lines of a printed answer that say where a test of these columns is small whatever the table is.

    ``noise_share``: its part in what the test expects without differences. ``most_p_values``: p-values where clipping
    has made as much of the differences as it may; ``p_values`` where it has made none.
    """
    noise, found, most = (np.atleast_1d(each) for each in (noise_share, p_values, most_p_values))
    hidden, moved = noise > _HIDING, (found < _LEVEL) & (most >= _LEVEL)
    why = {"noise hides differences": hidden, "clipping may have made the differences": moved & ~hidden}
    names = {reason: [name for name, yes in zip(of, each, strict=True) if yes] for reason, each in why.items()}
    return [f"  {test} says little of {listed(some)}: {reason}" for reason, some in names.items() if some]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Answer:
    """An answer from a release, at no further cost.

    Attributes
    ----------
    n_people : number of people that it is about, public or released.
    privacy : the report of the release, which pays for this and for every other answer from it.
    absent : whether absent values of columns count as locations: the printed form says what that does.
    """

    n_people: float
    privacy: PrivacyReport
    absent: bool = False

    _absence: ClassVar[str] = ""  # what absent values do to it

    def _printed(self, title: str, *lines: str, table: Sequence[Sequence[str]] = ()) -> str:
        head = [title, f"  privacy   {self.privacy}"]
        if self.absent and self._absence:
            head.append(f"  missing   values count as their column's location: {self._absence} (not in intervals)")
        return "\n".join([*head, *lines, *aligned(table)])


def _heads(labels: list[str]) -> list[str]:
    """What stands before an "=" in all of them alike, the shortest first."""
    first = labels[0]
    places = [place for place, sign in enumerate(first) if sign == "="]
    return [first[:place] for place in places if all(label.startswith(first[: place + 1]) for label in labels)]


Released = TypeVar("Released", bound=ReleasedColumns)


def on_one_thread_of_blas(
    ask: Callable[Concatenate[Released, Asked], Found],
) -> Callable[Concatenate[Released, Asked], Found]:
    """A question that is answered alike whatever the number of threads; several would be slower."""

    @wraps(ask)
    def answer(release: Released, /, *args: Asked.args, **options: Asked.kwargs) -> Found:
        with lapack_on_one_thread(release.model.n_features):
            return ask(release, *args, **options)

    return answer
