"""Every method with every model on people and a neighbour of theirs, for replays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from every_run import PCA_ALONE, SECOND_MOMENT_ALONE, D, builders, runs

import dpgep

BOUND = 2.0
EPSILON, DELTA = 1.0, 1e-5
# Beyond 2^500 bounds a row's length overflows when it is squared.
SCALES = {
    "of length 0": 0.0,
    "subnormal": 2.0**-1070,
    "tiny": 2.0**-500,
    "within the bound": 0.5,
    "on the bound": 1.0,
    "clipped": 3.0,
    "huge": 2.0**500,
    "beyond 2^500 bounds": 2.0**501.5,
    "next to overflow": 2.0**1019,
}
# People at the edges of blocks and of narrow kernels.
SIZES = (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257, 511, 513, 1023, 1024, 1025)


@dataclass(frozen=True)
class People:
    """Rows (n, D) and what models ask beside: labels, some of which nobody lists, and a response."""

    rows: Any
    labels: Any
    response: Any

    @property
    def n(self) -> int:
        return len(self.rows)

    def without_last(self) -> People:
        return People(self.rows[:-1], self.labels[:-1], self.response[:-1])

    def with_last(self, row: Any, label: int, response: float) -> People:
        """The last person replaced."""
        return People(
            np.vstack([self.rows[:-1], row]),
            np.append(self.labels[:-1], label),
            np.append(self.response[:-1], response),
        )


def people(rng: np.random.Generator, n: int, d: int = D) -> People:
    rows = rng.standard_normal((n, d)) * np.linspace(2.0, 0.5, d) / 4
    return People(rows, rng.integers(0, 3, n), np.clip(rows[:, 0] + 0.1 * rng.standard_normal(n), -1, 1))


def odd_person(rng: np.random.Generator, axis: int, scale: float, d: int = D) -> tuple[Any, int, float]:
    """Someone at the end of what is possible: along an axis (beyond the last: a random direction), of any length."""
    row = np.zeros(d)
    if axis < d:
        row[axis] = rng.choice([-1.0, 1.0])
    else:
        row[:] = rng.standard_normal(d)
        row /= np.linalg.norm(row)
    return BOUND * scale * row, int(rng.choice([0, 1, 2, 7])), float(rng.choice([-1.0, 0.3, 1.0, 1e9]))


def pairs(rng: np.random.Generator, adjacency: str, count: int, sizes: tuple[int, ...] = SIZES) -> Iterator[Any]:
    """(what differs, people, neighbour): every scale on one side or the other, at all sizes in turn."""
    scales = list(SCALES.items())
    for i in range(count):
        group = people(rng, int(rng.choice(sizes)))
        (name, first), (other, second) = (scales[int(rng.integers(len(scales)))] for _ in range(2))
        here = group.with_last(*odd_person(rng, int(rng.integers(D + 1)), first))
        if adjacency == "add-remove":
            yield f"n = {here.n}, one less, {name}", here.without_last(), here
        elif i % 4 == 0:  # equal and opposite
            row, label, response = here.rows[-1], int(here.labels[-1]), float(here.response[-1])
            yield f"n = {here.n}, opposite, {name}", here, here.with_last(-row, label, response)
        else:
            person = odd_person(rng, int(rng.integers(D + 1)), second)
            yield f"n = {here.n}, {name} and {other}", here, here.with_last(*person)


def models(bound: Any, adjacency: str) -> dict[str, Any]:
    """A builder for every model of rows."""
    rest: dict[str, Any] = {"bound": bound, "adjacency": adjacency}

    def of_group(build: Any) -> Any:
        return lambda g: build(g.rows, g.rows, g.labels, g.response)

    found = {name: of_group(build) for name, build in builders(**rest).items()}
    found["cca uncentred"] = lambda g: dpgep.cca(g.rows[:, :5], g.rows[:, 5:], center=False, **rest)
    if adjacency == "add-remove":
        known = {**rest, "public_n": 100}
        found["pca public n"] = lambda g: dpgep.pca(g.rows, **known)
        found["pca uncentred public n"] = lambda g: dpgep.pca(g.rows, center=False, **known)
        found["pls public n"] = lambda g: dpgep.pls(g.rows[:, :5], g.rows[:, 5:], **known)
        found["cca public n"] = lambda g: dpgep.cca(g.rows[:, :5], g.rows[:, 5:], **known)
    return found


def cases() -> Iterator[tuple[str, str, Any, str, str, dict[str, Any]]]:
    """(name, model, bound, adjacency, method, options) of all that fit together."""
    for (method, options), adjacency, bound in itertools.product(
        runs(D), ("replace-one", "add-remove"), (BOUND, "auto")
    ):
        for model in models(bound, adjacency):
            if fits(method, options, model, bound, adjacency):
                given = ", ".join(f"{key}={value}" for key, value in options.items() if np.isscalar(value))
                yield f"{method}({given}) {model} {bound} {adjacency}", model, bound, adjacency, method, options


def fits(method: str, options: dict[str, Any], model: str, bound: Any, adjacency: str) -> bool:
    """What `dpgep.solve` takes; the rest is refused before data are read (test_every_run.py)."""
    n_is_known = adjacency == "replace-one" or "public n" in model
    needs_products = options.get("storage") == "operator" or "screen" in options
    if model == "standardized-pca":
        return method in ("sr-dp", "auto") or (method == "release" and not needs_products)
    if method in SECOND_MOMENT_ALONE:
        return model.startswith("pca uncentred") and bound != "auto" and n_is_known
    if method in PCA_ALONE:
        return model.split()[0] in ("pca", "pls", "cca") and n_is_known
    return True
