"""`dpgep.Nights`: a register that grows every night, and a release of everything so far each morning, under one budget.

The arithmetic is in `dpgep.privacy.continual`, the file in `dpgep.night_file`.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_count
from dpgep._dispatch import core
from dpgep._threads import use_threads
from dpgep._watched import naming
from dpgep.data.ids import Identities
from dpgep.data.integer_moments import IntegerMoments
from dpgep.errors import AccuracyWarning, warn
from dpgep.models.model import Adjacency, Matrix, PublicFacts
from dpgep.models.moments import MomentLayout
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.row_model import RowModel, layout_of
from dpgep.night_file import NO_NIGHTS, NightFile, NightLog
from dpgep.privacy.accounting import Accounting
from dpgep.privacy.budget import Budget
from dpgep.privacy.continual import FACTOR_BITS, KEPT, MOST_NIGHTS, AllNights, Factor
from dpgep.privacy.curator import Curator, add_noise, normalized_moments
from dpgep.privacy.ledger import cost_of
from dpgep.privacy.noise import IntegerNoise
from dpgep.problems.builders import table_problem
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.problem import problem_of
from dpgep.reports.report import PrivacyReport
from dpgep.results.release import Release
from dpgep.run import Run
from dpgep.serialization import Format, opened

NIGHTS = Format("dpgep-nights")
# The part of the budget from which on a preparation has taken all that it may, and more would be wanted.
_LARGE_PREPARATION = 0.45
# Nights that are compared with those before: whole weeks. A morning has this chance of naming a column for nothing.
_WINDOW, _FALSE_ALARMS = 28, 1e-3
# Of a column's deviation, or of its mean square: what may change without a word.
_SLIGHT = 0.1


@dataclass(frozen=True, eq=False)
class Register:
    """What the first night has fixed for all others: public.

    Attributes
    ----------
    name : of all its people, drawn at random.
    model, bound, preprocessing, person, rows, largest_weight : of the rows of every night, as of `dpgep.Moments`.
    keep, nights : how many nights' noise is kept, and on how many a person may come.
    noise : of what each night publishes.
    report : of all nights together.
    terms : what was given for it, in words: the same may be given again.
    """

    name: str
    model: RowModel
    bound: float | None
    preprocessing: Preprocessing | None
    person: str | None
    rows: int | None
    largest_weight: float | None
    keep: int
    nights: int
    noise: IntegerNoise
    report: PrivacyReport
    terms: Mapping[str, str]

    @classmethod
    def stored(cls, log: NightLog) -> Register | None:
        """That of a file; None where no night has begun it."""
        return None if log.description is None else _read(log.description)

    def require_possible(self) -> None:
        """Raise ValueError for a register that nobody began: of less noise than its report says was paid for."""
        self.report.require_consistent()
        for name in ("keep", "nights"):
            require_count(name, getattr(self, name), largest=MOST_NIGHTS)
        weight_bits, public = self._nobody._weight_bits + FACTOR_BITS, self.report.public
        stated = public and public.nights, self.noise.weight_bits, self.report.bound
        if stated != (self.nights, weight_bits, self._nobody.bound):
            raise ValueError("the register is not of the nights and people that its report is about")
        mu = (self.report.releases[-1].mu if self.report.releases else None) or 0.0
        AllNights(self.factor, self.nights).require_paid(self.noise, self.layout, self.facts.adjacency, mu)

    @cached_property
    def factor(self) -> Factor:
        """What is published of exact sums."""
        return Factor(self.keep)

    def moments(self, log: NightLog) -> Moments:
        """Sums of nobody, for the rows of a night, from which who came as often as they may is left out.

        Where it is public who came when, they are not, and the night will be refused.
        """
        moments = self._nobody.copy()
        if self.person is not None and not self.facts.n_is_public and (came := log.came(self.nights)):
            moments._identities = Identities(left_out=Identities(came))
        return moments

    @cached_property
    def _nobody(self) -> Moments:
        names = ("bound", "preprocessing", "person", "rows", "largest_weight")
        of_rows: Any = {"adjacency": self.report.adjacency, **{name: getattr(self, name) for name in names}}
        return Moments(self.model, bits=self.noise.bits, **of_rows)

    @cached_property
    def facts(self) -> PublicFacts:
        """Of the rows of any night: the number of its people belongs to the night."""
        adjacency: Any = self.report.adjacency
        return PublicFacts(adjacency, self.report.bound, None, self.person, self.rows, self.largest_weight)

    @cached_property
    def layout(self) -> MomentLayout:
        """Of what is published."""
        return layout_of(self.model, self.facts, self.preprocessing)

    @cached_property
    def size(self) -> int:
        """How many numbers a night publishes."""
        layout, d = self.layout, self.layout.n_features
        return layout.n_matrices * d * (d + 1) // 2 + layout.n_groups * (d * layout.sums + layout.counts)

    def warn_of_few_people(self) -> None:
        """Warn where a preparation, which stays for all nights, is that of too small a first night: by what it took."""
        *before, of_nights = (cost_of(entry.mu) for entry in self.report.releases)
        part = float(sum(before) / (sum(before) + of_nights)) if math.isfinite(of_nights) else 0.0
        if part > _LARGE_PREPARATION:
            warn(
                f"the preparation took {part:.0%} of the budget of all nights, and is poor: the first night is small. "
                "Begin anew with a larger one, or give bound= or preprocessing= of public numbers",
                AccuracyWarning,
            )

    def drifted(self, log: NightLog) -> str:
        """In what the last four weeks differ from all nights before, by what was published alone."""
        if (last := len(log.nights)) < 2 * _WINDOW:
            return ""
        many = _many((1 + self.layout.sums) * self.layout.n_features)
        moved = np.flatnonzero(self.drift(log, last, many) > many)
        if not len(moved):
            return ""
        d, names = self.layout.n_features, self.model.feature_names
        who = [names[j] if names and j < len(names) else f"column {j}" for j in range(d)]
        found = [("mean square of ", "mean of ")[j // d] + str(who[j % d]) for j in moved]
        return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")

    def drift(self, log: NightLog, last: int, beyond: float = 0.0) -> Matrix:
        """(d,) or (2 d,): what changes of mean squares and means exceed slight ones by, in units of their deviations.

        Zeros where the noise alone shows that none is over ``beyond``. Deviations hold the noise, exactly, and people's
        spread, at most: of x^2 in [0, 1] it is q (1 - q), q being its mean.
        """
        spans = (1, last - _WINDOW), (last - _WINDOW + 1, last)
        (n_before, total), (n_so_far, so_far) = log.so_far(last - _WINDOW), log.so_far(last)
        (n, before), (n_now, now) = self._means(n_before, total), self._means(n_so_far - n_before, so_far - total)
        rows = [self.factor.combination(*span) / people for span, people in zip(spans, (n, n_now), strict=True)]
        rows[1][: spans[0][1]] -= rows[0]
        noise, groups, drawn = self.noise.deviations(), self.layout.n_groups, float(rows[1] @ rows[1])
        of_sums = np.array([[noise.second**2 * self.layout.n_matrices], [noise.sums**2 * groups]])[: len(before)]
        of_count = 0.0 if self.facts.n_is_public else noise.counts**2 * groups
        moved = np.abs(now - before)
        if (moved <= beyond * np.sqrt(drawn * of_sums)).all():
            return np.zeros(moved.size)
        squares = before**2
        large = np.minimum(np.maximum(before[0] + 2 * noise.second * math.sqrt(drawn), 0), 1)  # mean squares
        spread = np.maximum(large - squares, 0)
        spread[0] = large * (1 - large)
        slight = np.sqrt(spread)
        slight[0] = large
        change = np.maximum(moved - _SLIGHT * slight, 0)
        root = np.sqrt(drawn * (of_sums + of_count * squares) + spread * (self.nights * (1 / n + 1 / n_now)))
        constant: Matrix = np.where(change > 0, math.inf, 0.0)  # without noise
        np.divide(change, root, out=constant, where=root > 0)
        return constant.ravel()

    def _means(self, n: int, total: Matrix) -> tuple[float, Matrix]:
        """Of sums: the number of people; mean squares of columns of rows in the unit ball, and any means of them."""
        triangles, sums, counts = self._blocks(total)
        people = max(1.0, float(n) if self.facts.n_is_public else float(counts.sum()))
        found = np.empty((1 + self.layout.sums, self.layout.n_features))
        triangles.take(np.diagonal(_places(self.layout.n_features)), axis=1).sum(axis=0, out=found[0])
        if self.layout.sums:
            sums.sum(axis=1, out=found[1])
        found /= people
        return people, found

    def add(self, log: NightLog, label: str, moments: Moments) -> None:
        """Add a night of these people, and its noise.

        The noise follows from the file's secret and from exact sums up to each night: who adds the same nights to a
        copy of the file publishes the same numbers.
        """
        number, ids = len(log.nights) + 1, []
        if moments._identities is not None:
            ids = moments._identities._parts
            Identities([*log.somebody(), *(part[:1] for part in ids)])  # raises where ids are of several types
            if self.facts.n_is_public:
                before = Identities(log.came(self.nights))
                if any(len(before.others(part)) < len(part) for part in ids):
                    raise ValueError(
                        f"some people were on {self.nights} nights before, as often as they may: leave out their rows "
                        "of this night"
                    )
        tonight, shape = moments._sums.moments(), (self.layout.n_matrices, self.layout.n_features)
        values = np.zeros((2, self.size + shape[0] * shape[1] * (shape[1] - 1) // 2), np.int64)
        low, high = (self._blocks(limb, whole=True) for limb in values)
        given = tonight.second, tonight.sums, tonight.counts, *(tonight.high or ())
        for block, total in zip(given, (*low, *high), strict=False):
            total[...] = block
        steps = {k: step for k, step in self.factor.steps.items() if 0 < k < number}
        exact, noises = log.exact(), log.noise([number - k for k in steps])
        core.begin_night(values, exact, noises, np.array([*steps.values()], np.int64), *shape)
        stream = log.stream(exact)
        if self.noise.diagonal:
            add_noise(IntegerMoments(*low, high, self.noise.bits, 0), self.noise, stream)
        unit = math.ldexp(1.0, -2 * self.noise.bits - self.noise.weight_bits)
        noise, published = np.empty(self.size, np.int64), np.empty(self.size)
        core.end_night(values, exact, unit, noise, published, *shape)
        people = log.nights[-1].people if log.nights else 0
        log.add(label, people + moments.n * self.facts.n_is_public, ids, published, noise)

    def _blocks(self, sums: NDArray[Any], *, whole: bool = False) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Second moments, sums and counts of a vector of them, as views; triangles of the first, unless ``whole``."""
        d, last = self.layout.n_features, sums.size - self.layout.n_groups * self.layout.counts
        first = self.layout.n_matrices * (d * d if whole else d * (d + 1) // 2)
        shape = (*self.layout.shape[:-2], d, d) if whole else (self.layout.n_matrices, -1)
        return sums[:first].reshape(shape), sums[first:last].reshape(d, -1), sums[last:]

    def release(self, log: NightLog, first: int, last: int, named: str) -> Release:
        """The moments of the people of nights ``first`` to ``last``."""
        (n, total), (n_before, before) = log.so_far(last), log.so_far(first - 1)
        n, total = n - n_before, total - before
        if self.facts.n_is_public and not n:
            raise ValueError(f"{named}: nobody came")
        spread = float(np.linalg.norm(self.factor.combination(first, last)))
        noise = self.noise.deviations().scaled(spread, spread, spread)
        triangles, sums, counts = self._blocks(total)
        second = triangles.take(_places(self.layout.n_features), axis=1)
        blocks = second if self.layout.by_group else second[0], sums, counts
        noisy = normalized_moments(self.facts, self.layout, n, blocks, noise)
        *others, of_nights = self.report.releases
        scaled = (replace(block, deviation=block.deviation * spread, scale=None) for block in of_nights.noise)
        entry = replace(of_nights, query=f"{of_nights.query}; here {named}", noise=tuple(scaled))
        assert self.report.public is not None
        public = replace(self.report.public, n_people=n if self.facts.n_is_public else None)
        bought = self.preprocessing
        if bought is not None:  # these are of the first night's people
            bought = bought.of_others()
        report = replace(self.report, releases=(*others, entry), public=public)
        return Release(self.model, report, noisy, frozenset([self.name]), bought)


class Nights:
    """A register that grows every night, and a release of everything so far each morning, under one budget.

    The first night pays the whole budget, for all nights that will ever come: each night publishes a fixed combination
    of the exact sums of the last ``keep`` nights, with noise, and all that is asked follows from what was published. Up
    to ``keep`` nights, sums so far have about three times the noise of one release of everything for the whole budget
    (a year: 2.8, at most 3.0); beyond, it grows slowly (ten years, with the noise of one year kept: 4.2, at most 5.4).
    docs/nights.md says when another way is better.

    The file is as confidential as the rows: it holds exact sums, and with ``person`` who came. A night is in it as a
    whole or not at all, whatever crashes, and its noise is drawn once. Several processes may share it. **To go on from
    an older copy, add the same rows again**: the same numbers are published. With others, the copy is one more register
    of the same people: two cost the square root of two times mu.

    Parameters
    ----------
    path : path
        The file: the first night makes it, with the parameters below; later nights need nothing else.
    keep : int
        Noise of this many nights is combined, and kept, in 8 bytes for each pair of columns and night.
    nights : int
        On how many nights a person may come. With ``person`` and "add-remove", rows of further nights are left out, and
        nothing says whose, or how many; with "replace-one", where it is public who came when, such a night is refused.
        Without ``person`` this is a promise that nothing checks. Two nights cost 1.9 times the noise, twelve 9.9 times.
    model : one of `dpgep.models`, optional
        What is asked. Default: the moments of a table, for any question, as of `dpgep.release`.
    classes, slices, y_range, edges, by_group, bound, preprocessing, adjacency, rows, largest_weight
        As in `dpgep.release`. ``bound="auto"`` is bought of the first night's rows, and stays. "replace-one": how many
        people came on each night is public, and neighbours differ in all rows of a person, on the same nights.
        "add-remove": in whether a person came at all.
    person : str, optional
        The name of the ids of people, as in `dpgep.Moments`.
    epsilon, delta, rho, mu, budget, share, accounting, seed
        As in `dpgep.solve`.

    Examples
    --------
    >>> import numpy as np, dpgep, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "register.nights")
    >>> rng, terms = np.random.default_rng(0), {"epsilon": 1.0, "delta": 1e-6, "bound": 1.0}
    >>> for night in ("2026-11-23", "2026-11-24", "2026-11-25"):
    ...     nights = dpgep.Nights(path, **(terms if not os.path.exists(path) else {}))
    ...     so_far = nights.add(rng.standard_normal((3000, 4)) * [5, 2, 1, 1] / 15, night=night)
    >>> so_far.n_people, so_far.report.epsilon
    (9000.0, 1.0)
    >>> last_two = nights.release(first="2026-11-24")
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: int | None = None,
        nights: int | None = None,
        model: RowModel | None = None,
        classes: Sequence[Hashable] | None = None,
        slices: int | None = None,
        y_range: tuple[float, float] | None = None,
        edges: Sequence[float] | None = None,
        by_group: bool | None = None,
        bound: Bound | None = None,
        preprocessing: AutoPreprocessing | Preprocessing | None = None,
        adjacency: Adjacency | None = None,
        person: str | None = None,
        rows: int | None = None,
        largest_weight: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        mu: float | None = None,
        budget: Budget | None = None,
        share: float | None = None,
        accounting: Accounting = "gdp",
        seed: int | None = None,
    ) -> None:
        self._file, self._seed, self._model, self._person = NightFile(path), seed, model, person
        self._keep = require_count("keep", KEPT if keep is None else keep, largest=MOST_NIGHTS)
        self._nights = require_count("nights", 1 if nights is None else nights, largest=MOST_NIGHTS)
        forms = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu, "budget": budget, "share": share}
        self._paying: dict[str, Any] = {**forms, "accounting": accounting, "seed": seed}
        groups = {"classes": classes, "slices": slices, "y_range": y_range, "edges": edges, "by_group": by_group}
        facts = {"bound": bound, "preprocessing": preprocessing, "adjacency": adjacency, "rows": rows}
        described = {**groups, **facts, "largest_weight": largest_weight}
        self._rows = {name: value for name, value in described.items() if value is not None}
        given = {"keep": keep, "nights": nights, "model": model, "person": person, **forms, **self._rows}
        self._terms = {name: _in_words(value) for name, value in given.items() if value is not None}
        is_paid = any(value is not None for value in forms.values())
        self._is_begun = not is_paid
        if self._file.path.exists() or not is_paid:
            with self._file.transaction() as log:
                self._is_begun = (self._stored if is_paid else self._register)(log) is not None

    def add(
        self,
        X: Any,
        y: Any = None,
        *others: Any,
        night: str,
        person: Any = None,
        weights: Any = None,
        n_threads: int | None = None,
    ) -> Release:
        """Add the people of a night, all or none, and release everything so far.

        Of a night that is there already nothing is read: a command that was cut off can be repeated.

        Parameters
        ----------
        X, y, *others, person, weights, n_threads
            As in `dpgep.Moments.update`, also labels or a response as ``y`` where there are groups.
        night : str
            Its label, such as a date: public. Nights are in the order in which they are added.

        Returns
        -------
        Release
            Of all people so far, which answers all questions.

        Raises
        ------
        PrivacyBudgetError
            On the first night, as `dpgep.release`.
        TypeError, ValueError
            As `dpgep.Moments.update`, and under "replace-one" where people came more often than they may: the
            night is not added.
        OSError
            If the file cannot be written, or another process uses it for a minute.
        """
        label: Any = night
        if not isinstance(label, str) or not label.isprintable() or label != label.strip() or not label:
            raise ValueError(f"night must be a label without spaces around it, such as a date, got {night!r}")
        with use_threads(n_threads):
            self._require_begun(X, y, *others, person=person, weights=weights)
            with self._file.transaction(write=True) as log:
                register = self._register(log)
                if log.number(night) is not None:
                    warn(f"night {night!r} is there already: its rows were not read again", RuntimeWarning)
                else:
                    moments = register.moments(log)
                    moments.update(X, y, *others, person=person, weights=weights)
                    register.add(log, night, moments)
                found = register.release(log, 1, len(log.nights), "all nights so far")
                drifted = register.drifted(log)
        if drifted:  # once the night is on the disk, where warnings are errors
            differ = f"the last {_WINDOW} nights differ from those before"
            warn(AccuracyWarning(f"{differ}: {drifted}. Compare them by release(first=...)", found))
        return found

    def release(self, first: str | None = None, last: str | None = None) -> Release:
        """The release of the people of nights ``first`` to ``last``, by label; of all nights so far by default."""
        with self._file.transaction() as log:
            register = self._register(log)
            start = 1 if first is None else log.number(first) or 0
            end = len(log.nights) if last is None else log.number(last) or 0
            if not 1 <= start <= end:
                raise ValueError(f"no nights from {first!r} to {last!r}: there are {len(log.nights)}, see labels")
            return register.release(log, start, end, "all nights so far" if first is last is None else "some nights")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all nights, in their order."""
        with self._file.transaction() as log:
            return tuple(log.labels)

    def _register(self, log: NightLog) -> Register:
        """What the first night has fixed. Raises ValueError where there was none, or other terms were given."""
        if (found := self._stored(log)) is None:
            raise ValueError(NO_NIGHTS.format(self._file.path))
        return found

    def _stored(self, log: NightLog) -> Register | None:
        """The same, None where there was none."""
        found = Register.stored(log)
        if found is not None and self._seed is not None and not found.report.seeded:
            raise ValueError(f"the nights in {self._file.path} began without a seed: leave it out")
        for name, value in self._terms.items():
            if found is not None and found.terms.get(name) != value:
                has = f"{name} = {found.terms[name]}" if name in found.terms else f"no {name}"
                raise ValueError(f"the nights in {self._file.path} began with {has}, not {value}: leave it out")
        return found

    def _require_begun(self, *data: Any, **whose: Any) -> None:
        """The first rows begin the register, and pay for all nights."""
        if not self._is_begun:
            with self._file.transaction(write=True, create=True) as log:
                if self._stored(log) is None:  # or another process was faster
                    found, secret = self._begin(data, whose)
                    log.begin(NIGHTS.packed(found), secret, found.size, found.keep)
                begun = self._register(log)
            self._is_begun = True
            begun.warn_of_few_people()  # once it is on the disk, where warnings are errors

    def _begin(self, data: tuple[Any, ...], whose: dict[str, Any]) -> tuple[Register, bytes]:
        whose = {**whose, "person": self._person if whose["person"] is None else whose["person"]}
        make: Any = table_problem if self._model is None else partial(problem_of, self._model)
        problem = make(*(each for each in data if each is not None), **self._rows, **whose)
        run = Run.paid_by(problem, **self._paying)
        with run.reserved():
            noise, secret = run.curator(Curator, scaled=True).answer(AllNights(Factor(self._keep), self._nights))
        facts, public = problem.facts, run.report.public
        assert public is not None
        person = self._person or facts.person
        public = replace(public, n_people=None, person=person, nights=self._nights)
        register = Register(
            name=naming.get()(16),
            model=problem.model,
            bound=None if run.preprocessing is not None else facts.bound,
            preprocessing=run.preprocessing,
            person=person,
            rows=facts.rows,
            largest_weight=facts.largest_weight,
            keep=self._keep,
            nights=self._nights,
            noise=noise,
            report=replace(run.report, public=public),
            terms=self._terms,
        )
        return register, secret


def _in_words(term: Any) -> str:
    """A term, alike for values that are equal."""
    if isinstance(term, (int, float)) and not isinstance(term, bool):
        return repr(float(term))
    if isinstance(term, Budget):
        return "a budget"
    return repr(tuple(term)) if isinstance(term, (list, tuple)) else repr(term)


@lru_cache(maxsize=4)
def _read(description: bytes) -> Register:
    found: Register = opened(description).require(NIGHTS).record(Register, "the register")
    found.require_possible()
    return found


@lru_cache(maxsize=4)
def _places(d: int) -> NDArray[np.intp]:
    """(d, d), where the entries of a symmetric matrix are among those of its upper triangle, by rows."""
    i, j = np.ogrid[:d, :d]
    first = np.minimum(i, j)
    return np.asarray(first * (2 * d - first - 1) // 2 + np.maximum(i, j), np.intp)


@lru_cache(maxsize=4)
def _many(n: int) -> float:
    """Deviations that any of n columns exceed by chance on one in a thousand mornings."""
    return statistics.NormalDist().inv_cdf(1 - _FALSE_ALARMS / (2 * max(1, n)))
