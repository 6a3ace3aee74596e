"""`dpgep.auditing.replay`: a run on one data set, and on its neighbour with the same noisy answers.

No statistics are needed, and one pair of runs finds what thousands of them would not show.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import math
import re
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._watched import Transcript, names_drawn
from dpgep.privacy.accounting import answers_of
from dpgep.privacy.budget import Budget
from dpgep.privacy.ledger import Cost, LedgerEntry, cost_of, mu_rounded_up
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.problem import Problem
from dpgep.run import solve

# How long a run took, at the end of a line of our log: left out.
_SECONDS = re.compile(r"\d+\.\d{3} s$")


@dataclass(frozen=True)
class View:
    """What was seen."""

    seen: tuple[tuple[str, Any], ...]
    error: str | None  # the exception at the end, in words


def observe(call: Callable[[], Any]) -> View:
    """Run ``call``: its result, or exception with all that hangs on it, its warnings, log lines, what it printed."""
    lines, value, error = _Lines(), None, None
    printed, complaints = io.StringIO(), io.StringIO()
    root, own = logging.getLogger(), logging.getLogger("dpgep")
    level = own.level
    with (
        names_drawn() as names,
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complaints),
    ):
        warnings.simplefilter("always")
        root.addHandler(lines)
        own.setLevel(logging.DEBUG)
        try:
            value = call()
        except (Exception, SystemExit) as raised:
            error = raised
        finally:
            root.removeHandler(lines)
            own.setLevel(level)
        # objects may draw, warn or log where they are looked at: not as a part of the run
        what = {"result": value, "exception": error, "warnings": [each.message for each in caught], "log": lines.lines}
        what |= {"stdout": printed.getvalue(), "stderr": complaints.getvalue()}
        view = _Objects(names)
        seen = tuple((name, view.of(each)) for name, each in what.items())
    return View(seen, None if error is None else f"{type(error).__name__}: {error}")


def differences(first: Any, second: Any, path: str = "") -> Iterator[str]:
    """Where two observations differ, outermost first."""
    if first == second:
        return
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        for i, (a, b) in enumerate(zip(first, second, strict=True)):
            is_named = isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], str)
            within = f"{path}.{a[0].rpartition('.')[2]}" if is_named else path if len(first) == 2 else f"{path}[{i}]"
            yield from differences(a, b, within)
    else:
        a, b = (each if isinstance(each, str) else repr(each) for each in (first, second))
        yield f"{path.lstrip('.') or 'result'}: {a:.120} and {b:.120}"


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        own = record.name.split(".")[0] == "dpgep"
        self.lines.append(f"{record.name} {record.levelname} {_SECONDS.sub('... s', text) if own else text}")


class _Objects:
    """Objects as nested tuples of bytes and texts; of ``names`` drawn at random the number is seen."""

    def __init__(self, names: list[str]) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}  # by identity, with the object, which so stays alive
        self._names = names

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return repr(self._text(value))
        if value is None or isinstance(value, (bool, int, bytes, range, slice, type(...))):
            return repr(value)
        if isinstance(value, (float, complex)):
            return value.hex() if isinstance(value, float) else (value.real.hex(), value.imag.hex())
        if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc, np.dtype)):
            return f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', value)}"
        if id(value) in self._seen:
            return f"the object number {self._seen[id(value)][0]}"
        self._seen[id(value)] = (len(self._seen), value)
        return (self.of(type(value)), self._parts(value))

    def _parts(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            entries = tuple(map(self.of, value.ravel())) if value.dtype == object else value.tobytes()
            return (str(value.dtype), value.shape, entries, self._attributes(value))
        if isinstance(value, np.generic):
            return (str(value.dtype), value.tobytes())
        if isinstance(value, (list, tuple)):
            return (*map(self.of, value), self._attributes(value))
        if isinstance(value, (set, frozenset)):
            # in an order that random names, which differ by their numbers, do not decide
            return (*sorted(map(self.of, sorted(value, key=repr)), key=repr), self._attributes(value))
        if isinstance(value, (dict, types.MappingProxyType)):
            return (*((repr(key), self.of(each)) for key, each in value.items()), self._attributes(value))
        if isinstance(value, BaseException):
            chain = {"cause": value.__cause__, "context": value.__context__}
            return (self._text(str(value)), self.of({**chain, **vars(value)}), self._state(value))
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            defaults = (value.__defaults__, value.__kwdefaults__)
            return (value.__qualname__, self.of(cells), self.of(defaults), self._attributes(value))
        if isinstance(value, types.MethodType):
            return (value.__func__.__qualname__, self.of(value.__self__))
        if isinstance(value, functools.partial):
            return (self.of(value.func), self.of(value.args), self.of(value.keywords))
        return self._state(value)

    def _attributes(self, value: Any) -> Any:
        """What a subclass, or whoever held the object, has added to it."""
        added = getattr(value, "__dict__", None)
        return self.of(dict(added)) if added else ()

    def _state(self, value: Any) -> Any:
        """What the object and a pickle of it hold, or, where there can be none, its public attributes."""
        held = dict(getattr(value, "__dict__", {}))  # before a pickle settles what was deferred
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # whatever an object raises that guards what it holds
            names = [name for name in dir(value) if not name.startswith("_")]
            attributes = {name: getattr(value, name, None) for name in names}
            return self.of({name: each for name, each in attributes.items() if not callable(each)})
        if isinstance(reduced, str):
            return reduced
        return self.of([held, *reduced[:3], *(list(items or ()) for items in reduced[3:5])])

    def _text(self, text: str) -> str:
        for i, name in enumerate(self._names):
            text = text.replace(name, f"name {i}")
        return text


# Answers whose entries share a deviate have a covariance that is inverted in floating point.
_ROUNDING = 2.0**-40
_LAWS = ("independent", "symmetric", "along")


@dataclass(frozen=True)
class ReplayPart:
    """The draws that some entries of the ledger paid for.

    Attributes
    ----------
    query : the last of these entries, in words.
    mu : what the pair costs here.
    claimed_mu : what the entries say; None where nothing was paid.
    draws : number of draws.
    """

    query: str
    mu: float
    claimed_mu: float | None
    draws: int


@dataclass(frozen=True, repr=False)
class ReplayResult:
    """What two runs with the same answers show about a pair of neighbours. It holds exact values: not for publication.

    Attributes
    ----------
    differences : where what a caller sees differs, although the answers are the same; empty as it should be.
    mu : the Gaussian-DP parameter of this pair: the root of the sum of squared shifts over squared deviations, rounded
        up.
    claimed_mu : what the ledger, or the caller, claims for all pairs.
    parts : the same for each payment.
    error : the exception that the first run ended with, in words; None where it returned something.
    """

    differences: tuple[str, ...]
    mu: float
    claimed_mu: float
    parts: tuple[ReplayPart, ...]
    error: str | None = None

    @property
    def ratio(self) -> float:
        """``mu`` over its claim; 0 where both are."""
        return 0.0 if self.mu == 0 else self.mu / self.claimed_mu if self.claimed_mu else math.inf

    @property
    def flagged(self) -> bool:
        """Whether something differs, or a claim is false, that of a part included."""
        # where a ledger pays for some noise, what it does not pay for is for nothing
        unpaid = math.inf if all(part.claimed_mu is None for part in self.parts) else 0.0
        claims = [(part.mu, unpaid if part.claimed_mu is None else part.claimed_mu) for part in self.parts]
        claims.append((self.mu, self.claimed_mu))
        return bool(self.differences) or any(mu > claim for mu, claim in claims)

    def __repr__(self) -> str:
        lines = [f"ReplayResult: mu = {self.mu:.6g} for this pair (claimed {self.claimed_mu:.6g})"]
        for part in self.parts:
            claim = "nothing was paid" if part.claimed_mu is None else f"claimed {part.claimed_mu:.6g}"
            lines.append(f"  {part.mu:<10.4g} ({claim}) {part.query}, draws: {part.draws}")
        if self.error is not None:
            lines.append(f"  the first run ended with {self.error:.300}")
        lines += [f"  DIFFERS: {each}" for each in self.differences]
        if not self.flagged:
            lines.append("  not flagged: same answers, same view")
        elif not self.differences:
            lines.append("  FLAGGED: a claim is false")
        return "\n".join(lines)


def replay(
    mechanism: Callable[[Any], Any],
    neighbours: tuple[Any, Any],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    **options: Any,
) -> ReplayResult:
    """Run a mechanism on two neighbouring data sets, the second time with the noisy answers of the first run.

    What a caller sees may depend on answers alone. So the draws of noise, the ledger, results to their last bit,
    warnings, messages, exceptions and log lines must be the same in both runs: whatever differs is a leak that nothing
    pays for. And by what an exact value moves, in deviations of its noise, this pair costs

        mu^2 = sum over draws of (x - x')^T S^-1 (x - x'),      S the covariance of the noise,

    exactly, and at most what is claimed. `dpgep.auditing.audit` bounds the same mu from below, by statistics.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(data)`` returns a problem (from `dpgep.pca`, `cca`, ...), which is then solved with the budget and
        options given here, or anything else that a caller may see. All noise of the package is watched; mechanisms of
        your own draw theirs with `dpgep.privacy.noise.add_grid_noise`. It must not use other randomness.
    neighbours : (data, data_prime)
        Two neighbouring data sets, in any form ``mechanism`` takes. Where one has a person more, who is the last one of
        ``data_prime``, this person is in all samples that a method takes.
    epsilon, delta, rho, mu : float
        The claim, in one of the forms of `dpgep.Budget`: for problems, the budget of the run. Default: what ledgers
        recorded. Of answers about samples always that, for a person who is in each sample.
    **options
        For `dpgep.solve`, if ``mechanism`` returns problems.

    Returns
    -------
    ReplayResult
        It holds what exact values say about people: audit with made-up data, or keep it to yourself. docs/audits.md has
        examples.

    Notes
    -----
    Not compared: how long a run takes, the memory that it needs, frames of tracebacks, random names of the package.
    Bytes that a mechanism takes from a stream count as public randomness, and threads that it starts itself are not
    watched. Streams made by ``mechanism`` draw nothing once the replay is over.
    """
    before, after = neighbours
    forms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    has_claim = any(value is not None for value in forms.values())
    claimed_mu = Budget(**forms).mu if has_claim else None

    def run(data: Any) -> Any:
        output = mechanism(data)
        return solve(output, **forms, **options) if isinstance(output, (Problem, Moments)) else output

    first = Transcript()
    second = Transcript(first)
    views: list[View] = []
    for transcript, data in ((first, before), (second, after)):
        with transcript.watching():
            views.append(observe(partial(run, data)))
    found = _differing_draws(first, second)
    if [entry for _, entry in first.payments] != [entry for _, entry in second.payments]:
        found += differences(str(first.payments), str(second.payments), "ledger")
    found += differences(views[0].seen, views[1].seen)
    parts = _parts(first, second)
    if any(entry.mu is None for _, entry in first.payments):
        claimed_mu = None
    total = sum((squared for _, _, squared, _ in parts), Fraction(0))
    claimed = sum((claim for *_, claim in parts if claim is not None), Fraction(0))
    return ReplayResult(
        tuple(found),
        mu_rounded_up(total),
        mu_rounded_up(claimed) if claimed_mu is None else claimed_mu,
        tuple(
            ReplayPart(query, mu_rounded_up(squared), None if claim is None else mu_rounded_up(claim), draws)
            for query, draws, squared, claim in parts
        ),
        views[0].error,
    )


def _differing_draws(first: Transcript, second: Transcript) -> list[str]:
    found = []
    if second.draws.divergence:
        found.append(f"the draws: {second.draws.divergence}")
    elif second.draws.n_queries < first.draws.n_queries:
        found.append(f"the draws: {first.draws.n_queries}, and {second.draws.n_queries} in the second run")
    rates = {rate for _, entry in first.payments if entry.event is not None for _, rate, _ in answers_of(entry.event)}
    keys: list[Any] = []
    unpaid: list[float] = []
    for query in map(first.draws.query, range(first.draws.n_queries)):
        keys += query[-1]
        if query[0] == "sample" and query[3][0] not in rates:
            unpaid.append(query[3][0])
    if unpaid:
        found.append(f"the draws: a sample of rate {unpaid[0]}, where {sorted(rates)} are paid for")
    if len(set(keys)) < len(keys):
        found.append("the draws: noise was drawn twice from one state, so that differences of answers have none")
    return found


def _parts(first: Transcript, second: Transcript) -> list[tuple[str, int, Cost, Cost | None]]:
    """(query, draws of noise, squared shift, claim) between payments; payments without draws join the next ones."""
    parts: list[tuple[str, int, Cost, Cost | None]] = []
    paid: list[LedgerEntry] = []
    start = 0
    for place, entry in [*first.payments, (first.draws.n_queries, None)]:
        n, squared, steps = _shift(first, second, range(start, place))
        if n or (entry is None and paid):
            claim = sum((_claim(each, steps) for each in paid), Fraction(0)) if paid else None
            parts.append((paid[-1].query if paid else "noise that nothing paid for", n, squared, claim))
            paid = []
        start = place
        if entry is not None:
            paid.append(entry)
    return parts


def _shift(first: Transcript, second: Transcript, draws: range) -> tuple[int, Cost, int]:
    """(draws of noise, their squared shift, steps between the neighbours in samples)."""
    n, steps = 0, 1
    squared: Cost = Fraction(0)
    for i in draws:
        a = first.draws.query(i)
        n += a[0] in _LAWS
        if i < second.draws.n_queries:
            b = second.draws.query(i)
            squared += _squared_shift(a, b)
            if a[0] == "sample" and a[5][0] == b[5][0]:
                steps = 2  # a person who is replaced leaves a sample, and another one enters it
    return n, squared, steps


def _claim(entry: LedgerEntry, steps: int) -> Cost:
    """mu^2 of an entry; of answers about samples, that of a person who is in all of them."""
    if entry.mu is not None:
        return cost_of(entry.mu)
    return steps**2 * Fraction(math.fsum(number / noise**2 for noise, _, number in answers_of(entry.event)))


def _squared_shift(first: Any, second: Any) -> Cost:
    """What two exact values of one draw cost: the squared distance in units of its noise."""
    law, shape, scales, direction, *_ = first
    if law not in _LAWS:
        return Fraction(0)
    change = _integers(second) - _integers(first)
    if law == "along":
        return _along(change.astype(np.float64), scales.astype(np.float64), np.array(direction))
    if law == "independent":
        return _squares(change, scales[0])
    change = change.reshape(shape)
    upper = np.triu_indices(len(change), 1)
    return _squares(np.diagonal(change), scales[0]) + _squares(change[upper], scales[1])


def _integers(query: Any) -> NDArray[Any]:
    """The exact values, as whole numbers of any size."""
    bits, low, high = query[4], query[5].astype(object), query[6].astype(object)
    return np.asarray((high << bits) + low if high.size else low)


def _squares(change: NDArray[Any], scale: Any) -> Cost:
    total = sum(int(each) ** 2 for each in change[change != 0])
    if not total:
        return Fraction(0)
    return Fraction(total, int(scale) ** 2) if scale else math.inf


def _along(change: NDArray[Any], scales: NDArray[Any], direction: NDArray[Any]) -> Cost:
    """change^T S^-1 change for S = diag(s^2) + v v^T, by Sherman and Morrison."""
    *own, shared = scales
    weights = 1 / np.square(own)
    v = shared * direction
    squared = math.fsum(weights * change**2) - (weights * change) @ v * ((weights * change) @ v) / (1 + weights * v @ v)
    return Fraction(max(0.0, squared * (1 - _ROUNDING)))
