"""Bits of seeded runs, before and after a change of the code: every model, method and source.

`python benchmarks/frozen_bits.py write FILE` keeps a hash of each run, `compare FILE` names the runs that differ from
those kept. BLAS and the processor decide last bits: both must run on one machine.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dpgep
from dpgep.methods import METHODS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from every_run import matrix_problem, of_a_matrix_alone, problems, runs

BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "seed": 7}


def digest(solution: Any) -> str:
    arrays = [solution.components, solution.eigenvalues, solution.mean]
    held = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays if each is not None))
    return held.hexdigest()[:16]


def solved(problem: Any, **arguments: Any) -> str:
    """The hash of a solution, or the error that refuses the run."""
    try:
        return digest(dpgep.solve(problem, **BUDGET, **arguments))
    except (ValueError, TypeError) as error:
        return type(error).__name__


def of_methods() -> Iterator[tuple[str, str]]:
    """Every method on every model, both adjacencies, dense and sparse rows."""
    for adjacency in ("replace-one", "add-remove"):
        for sparse in (False, True):
            made = problems(adjacency, sparse) | of_a_matrix_alone(adjacency, sparse)
            for name, problem in ({"gep": matrix_problem()} | made).items():
                for i, (method, options) in enumerate(runs(problem.model.n_features)):
                    k = 2 if method in ("release", "auto") else 1
                    key = f"{name} {adjacency} {'sparse' if sparse else 'dense'} {method} {i}"
                    n_components = min(k, problem.model.max_components)
                    yield key, solved(problem, n_components=n_components, method=method, **options)
    assert METHODS


def of_tables() -> Iterator[tuple[str, str]]:
    """Bought bounds, Moments and sources."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6000, 6)) @ (np.eye(6) + 0.4) * 10.0 ** np.arange(6) + np.arange(6)
    labels, y = rng.integers(0, 3, 6000), x[:, 0] + rng.standard_normal(6000)
    rows: dict[str, Any] = {"in memory": x, "batches": [x[:2500], x[2500:]]}
    for source, given in rows.items():
        held = dpgep.scan(given) if source == "batches" else given
        yield f"pca auto {source}", solved(dpgep.pca(held))
        yield f"standardized auto {source}", solved(dpgep.pca(held, standardize=True))
    for adjacency in ("replace-one", "add-remove"):
        rest: dict[str, Any] = {"adjacency": adjacency}
        yield f"cca auto {adjacency}", solved(dpgep.cca(x[:, :3], x[:, 3:], **rest))
        yield f"pls auto {adjacency}", solved(dpgep.pls(x[:, :3], x[:, 3:], **rest))
        yield f"fda auto {adjacency}", solved(dpgep.fda(x, labels, classes=[0, 1, 2], **rest))
        yield f"sir auto {adjacency}", solved(dpgep.sir(x, y, slices=5, y_range=(-3, 3), **rest))
        moments = dpgep.Moments(dpgep.models.PcaModel(6, center=True), bound=1e5, **rest)
        for batch in rows["batches"]:
            moments.update(batch)
        yield f"moments {adjacency}", solved(moments, n_components=2)
    wide = rng.standard_normal((20000, 200)) / np.r_[2.0:7.0, np.full(195, 30.0)]
    for method in ("release", "auto", "clipped-power"):
        yield f"wide {method}", solved(dpgep.pca(wide, bound=1.0), n_components=5, method=method)
        yield f"wide auto bound {method}", solved(dpgep.pca(wide), n_components=5, method=method)


def main() -> int:
    verb, path = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("ignore")
    found = dict([*of_methods(), *of_tables()])
    print(len(found), "runs,", len({*found.values()}), "different answers")
    if verb == "write":
        path.write_text(json.dumps(found, indent=1))
        return 0
    kept = json.loads(path.read_text())
    differing = [key for key in kept | found if kept.get(key) != found.get(key)]
    print(len(differing), "differ", *differing, sep="\n")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
