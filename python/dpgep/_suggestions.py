"""What an unknown option was meant to be: nearly the same word, another library's, or an option of another function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Words of scikit-learn, diffprivlib and others.
_BORROWED = {
    "accountant": "budget", "batch_size": "batch_rows", "bounds": "bound", "center_data": "center", "clip": "bound",
    "data_norm": "bound", "eps": "epsilon", "k": "n_components", "n_bins": "slices", "n_classes": "classes",
    "n_jobs": "n_threads", "n_slices": "slices", "norm": "bound", "random_state": "seed", "reg": "regularization",
    "rng": "seed", "scale": "standardize", "shrinkage": "regularization", "solver": "method", "svd_solver": "method",
    "threads": "n_threads", "whiten": "standardize",
}  # fmt: skip
_OF_PROBLEMS = ("adjacency", "bound", "center", "classes", "edges", "public_n", "slices", "standardize", "y_range")
_OF_RUNS = (
    "accounting", "budget", "delta", "epsilon", "method", "mu", "n_components", "n_threads", "rho", "seed", "share",
)  # fmt: skip


def suggestion(name: str, known: Iterable[str]) -> str:
    """What to end the message with that refuses ``name``, where only ``known`` names will do; else nothing."""
    borrowed = _BORROWED.get(name, name)
    for names, text in (
        (list(known), "did you mean {!r}?"),
        (_OF_PROBLEMS, "{0} belongs to the problem, as in dpgep.pca(X, {0}=...)"),
        (_OF_RUNS, "{0} belongs to the run, as in dpgep.solve(problem, {0}=...)"),
    ):
        near = [borrowed] if borrowed in names else get_close_matches(name, names, n=1, cutoff=0.75)
        if near:
            return "; " + text.format(near[0])
    return ""


def suggesting(function: Callable[P, R]) -> Callable[P, R]:
    """A function that refuses unknown options with a `suggestion`. Warnings in it are a level further from callers."""
    parameters = inspect.signature(function).parameters
    known = None if any(each.kind is each.VAR_KEYWORD for each in parameters.values()) else parameters

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if known is not None and name not in known:
                raise TypeError(f"{function.__name__}() has no option {name!r}{suggestion(name, known)}")
        return function(*args, **options)

    return checked
