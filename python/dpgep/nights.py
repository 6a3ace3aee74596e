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
from dpgep.data.integer_moments import LOW_BITS, IntegerMoments
from dpgep.data.people import weight_bits_of
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
# Noise of sums so far is less than 2^62 steps of the grid. Multiples of it are added in two limbs, the lower of 2^32;
# in one where it is below 2^56.
_NOISE_BITS, _HALF_BITS, _ONE_LIMB_BITS = 62, 32, 56
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
        weight_bits, public = weight_bits_of(self.facts) + FACTOR_BITS, self.report.public
        if (public and public.nights, self.noise.weight_bits) != (self.nights, weight_bits):
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
        moments = Moments(
            self.model,
            bound=self.bound,
            preprocessing=self.preprocessing,
            adjacency=self.facts.adjacency,
            bits=self.noise.bits,
            person=self.person,
            rows=self.rows,
            largest_weight=self.largest_weight,
        )
        if self.person is not None and not self.facts.n_is_public and (came := log.came(self.nights)):
            moments._identities = Identities(left_out=Identities(came))
        return moments

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
        return _packed(*self.layout.blocks(np.zeros(self.layout.shape, np.int64))).size

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
        deviations = self.drift(log, last)
        moved = np.flatnonzero(deviations > _many(len(deviations)))
        if not len(moved):
            return ""
        d, names = self.layout.n_features, self.model.feature_names
        who = [names[j] if names and j < len(names) else f"column {j}" for j in range(d)]
        found = [("mean square of ", "mean of ")[j // d] + str(who[j % d]) for j in moved]
        return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")

    def drift(self, log: NightLog, last: int) -> Matrix:
        """(d,) or (2 d,): what changes of mean squares and means exceed slight ones by, in units of their deviations.

        These hold the noise, exactly, and people's spread, at most: of x^2 in [0, 1] it is q (1 - q), q being its mean.
        """
        spans = (1, last - _WINDOW), (last - _WINDOW + 1, last)
        (n_before, total), (n_so_far, so_far) = log.so_far(last - _WINDOW), log.so_far(last)
        (n, *before), (n_now, *now) = self._means(n_before, total), self._means(n_so_far - n_before, so_far - total)
        rows = [self.factor.combination(*span) / people for span, people in zip(spans, (n, n_now), strict=True)]
        rows[1][: spans[0][1]] -= rows[0]
        noise, groups = self.noise.deviations(), self.layout.n_groups
        copies = (groups if self.layout.by_group else 1, groups)
        of_count = 0.0 if self.facts.n_is_public else noise.counts**2 * groups
        found: list[Matrix] = []
        drawn = float(rows[1] @ rows[1])
        for old, new, scale, several in zip(before, now, (noise.second, noise.sums), copies, strict=True):
            if old.size:
                large = np.minimum(np.maximum(before[0] + 2 * noise.second * math.sqrt(drawn), 0), 1)  # mean squares
                spread = large * (1 - large) if not found else np.maximum(large - old**2, 0)
                people = spread * self.nights * (1 / n + 1 / n_now)
                slight = _SLIGHT * (np.sqrt(spread) if found else large)
                change = np.maximum(np.abs(new - old) - slight, 0)
                root = np.sqrt(drawn * (scale**2 * several + of_count * old**2) + people)
                constant = np.where(change > 0, math.inf, 0.0)  # without noise
                found.append(np.divide(change, root, out=constant, where=root > 0))
        return np.concatenate(found)

    def _means(self, n: int, total: Matrix) -> tuple[float, Matrix, Matrix]:
        """Of sums: the number of people, mean squares of the columns of rows in the unit ball, and their means."""
        triangles, sums, counts = self._parts(total)
        people = max(1.0, float(n) if self.facts.n_is_public else float(counts.sum()))
        squares = triangles[:, _diagonal(self.layout.n_features)].sum(axis=0)
        return people, squares / people, sums.sum(axis=1) / people if sums.size else np.empty(0)

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
        tonight = moments._sums.moments()
        low = _packed(tonight.second, tonight.sums, tonight.counts)
        exact = np.stack([low, np.zeros_like(low) if tonight.high is None else _packed(*tonight.high)]) + log.exact()
        _carry(*exact)
        sums = exact << FACTOR_BITS
        noisy = self._noisy(sums[0] - self._carried(log, number), sums[1], log.stream(exact))
        noise = noisy[0] - sums[0] + ((noisy[1] - sums[1]) << LOW_BITS)
        if not _is_below(_NOISE_BITS, noise):
            raise ValueError("the noise of all nights together is more than the file can hold: begin another")
        unit = -2 * self.noise.bits - self.noise.weight_bits
        published = np.ldexp(noisy[1] * 2.0**LOW_BITS + noisy[0], unit)
        people = log.nights[-1].people if log.nights else 0
        log.add(label, people + moments.n * self.facts.n_is_public, ids, published, noise, exact)

    def _noisy(
        self, low: NDArray[np.int64], high: NDArray[np.int64], stream: core.NoiseStream
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """These limbs of integer sums, and a night's noise."""
        limbs = self._blocks(low.copy()), self._blocks(high.copy())
        if self.noise.diagonal:
            add_noise(IntegerMoments(*limbs[0], limbs[1], self.noise.bits, 0), self.noise, stream)
        low, high = (_packed(*limb) for limb in limbs)
        _carry(low, high)
        return low, high

    def _carried(self, log: NightLog, number: int) -> NDArray[np.int64]:
        """(size,), the combination of noise of nights before that this one subtracts, to the nearest whole number."""
        low, high = np.full(self.size, 1 << FACTOR_BITS - 1), np.zeros(self.size, np.int64)
        for k, step in self.factor.steps.items():
            if 0 < k < number:
                before = log.noise(number - k)
                if _is_below(_ONE_LIMB_BITS, before):
                    low += step * before
                else:
                    low += step * (before & (1 << _HALF_BITS) - 1)
                    high += step * (before >> _HALF_BITS)
        return np.asarray((low >> FACTOR_BITS) + (high << _HALF_BITS - FACTOR_BITS))

    def _blocks(self, packed: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """(second moment, sums, counts), of which `_packed` made one vector."""
        triangles, sums, counts = self._parts(packed)
        d = self.layout.n_features
        second = np.zeros((*self.layout.shape[:-2], d, d), packed.dtype)
        second.reshape(-1, d * d)[:, _upper(d)] = triangles
        return second, sums, counts

    def _parts(self, packed: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The same as views: (matrices, pairs) upper triangles of the second moment, sums, counts."""
        d, last = self.layout.n_features, packed.size - self.layout.n_groups * self.layout.counts
        first = self.layout.n_matrices * d * (d + 1) // 2
        triangles = packed[:first].reshape(self.layout.n_matrices, -1)
        return triangles, packed[first:last].reshape(d, -1), packed[last:]

    def release(self, log: NightLog, first: int, last: int, named: str) -> Release:
        """The moments of the people of nights ``first`` to ``last``."""
        (n, total), (n_before, before) = log.so_far(last), log.so_far(first - 1)
        n, total = n - n_before, total - before
        if self.facts.n_is_public and not n:
            raise ValueError(f"{named}: nobody came")
        spread = float(np.linalg.norm(self.factor.combination(first, last)))
        noise = self.noise.deviations().scaled(spread, spread, spread)
        noisy = normalized_moments(self.facts, self.layout, n, self._blocks(total), noise)
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
            numbers = (
                1 if first is None else log.number(first),
                len(log.nights) if last is None else log.number(last),
            )
            start, end = (found or 0 for found in numbers)
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
                    given = {name: value for name, value in whose.items() if value is not None}
                    found, secret = self._begin(data, given)
                    log.begin(NIGHTS.packed(found), secret, found.size, found.keep)
                begun = self._register(log)
            self._is_begun = True
            begun.warn_of_few_people()  # once it is on the disk, where warnings are errors

    def _begin(self, data: tuple[Any, ...], whose: dict[str, Any]) -> tuple[Register, bytes]:
        ids = {} if self._person is None else {"person": self._person}
        make = table_problem if self._model is None else partial(problem_of, self._model)
        problem = make(*(each for each in data if each is not None), **{**self._rows, **ids, **whose})
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
def _upper(d: int) -> NDArray[np.intp]:
    """Where the upper triangle lies in a (d, d) matrix."""
    return np.flatnonzero(np.triu(np.ones((d, d), np.bool_)))


@lru_cache(maxsize=4)
def _diagonal(d: int) -> NDArray[np.intp]:
    """Where the diagonal lies in the upper triangle."""
    return np.flatnonzero(_upper(d) % (d + 1) == 0)


@lru_cache(maxsize=4)
def _many(n: int) -> float:
    """Deviations that any of n columns exceed by chance on one in a thousand mornings."""
    return statistics.NormalDist().inv_cdf(1 - _FALSE_ALARMS / (2 * max(1, n)))


def _packed(second: NDArray[Any], sums: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """Blocks of moments as one vector, of the upper triangle of the first."""
    d = second.shape[-1]
    triangles = np.take(second.reshape(-1, d * d), _upper(d), axis=1)
    return np.concatenate([triangles.ravel(), sums.ravel(), counts.ravel()])


def _is_below(bits: int, noise: NDArray[np.int64]) -> bool:
    """Whether all are, in magnitude, below 2^bits."""
    return -(1 << bits) < int(noise.min(initial=0)) and int(noise.max(initial=0)) < 1 << bits


def _carry(low: NDArray[np.int64], high: NDArray[np.int64]) -> None:
    """Leave less than 2^40 in low limbs."""
    high += low >> LOW_BITS
    low &= (1 << LOW_BITS) - 1
