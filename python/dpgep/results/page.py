"""A release as a page that answers: one file, for a browser without network or server, written from the release alone.

What a browser cannot know, quantiles of laws and what was simulated, is computed here, and the rest there: `answers.js`
has the formulas of `dpgep.results`, on the released moments of everybody in the coordinates of mapped rows.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict, astuple
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import scipy  # its special functions are loaded when they are used

from dpgep.errors import AccuracyWarning
from dpgep.models.clipping import Clipping
from dpgep.models.model import Matrix
from dpgep.models.moments import standardization_of, total_mean
from dpgep.models.preprocessing import location_and_scale
from dpgep.privacy.ledger import LEDGER, ledger_rows
from dpgep.reports.guarantee import SIGNATURE, key_rows, risk_sentences
from dpgep.reports.report import document_of
from dpgep.results.columns import Mapped, ReleasedColumns, of_unseen
from dpgep.results.contingency import Variables
from dpgep.results.estimates import reach_of_means
from dpgep.serialization import Target, save

# Components of all columns whose edge of the noise is on the page; what is on it of a description.
_EDGES = 20
_DESCRIBED = "mean", "mean_low", "mean_high", "deviation", "deviation_low", "deviation_high"
_QUARTILES = "quartiles", "quartile_low", "quartile_high"


def to_html(release: Any, target: Target, *, level: float = 0.9, **about: Any) -> None:
    """Write a page that answers questions: to a path or an open binary file, at no further cost.

    One file for any browser, without network or server: correlations, components, regressions, group means and
    crosstabs of any columns, with the intervals that Python gives, at ``level``; the guarantee, and its report to be
    saved and verified. It holds the released moments, so it may be published where the release may. A file of this name
    is replaced atomically. Other parameters, as for `dpgep.PrivacyReport.to_json`, are of the report.

    Raises ValueError for a release without a mean, or whose columns are mixed.
    """
    folder = Path(__file__).parent
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in ("explore.html", "answers.js", "explore.js")}
    # no text of the data ends the script that holds it
    data = json.dumps(_data(release, level, about), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    page = Template(parts["explore.html"]).substitute(answers=parts["answers.js"], view=parts["explore.js"], data=data)
    save(page.encode(), target)


def _data(release: Any, level: float, about: dict[str, Any]) -> dict[str, Any]:
    """What is on the page, as JSON holds it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        described, correlation = release.describe(level=level), release.correlation(level=level)
        said = [str(each.message) for each in caught if issubclass(each.category, AccuracyWarning)]
        pca = {"plain": _judged(release, False), "standardized": _judged(release, True)}
        noisy, preprocessing = mapped = release._moments_of(release._numbers(None))
    standard, d, tail = standardization_of(noisy), len(noisy.second), (1 + level) / 2
    freedom, (location, scale) = np.maximum(noisy.n - np.arange(d) - 1, 1.0), location_and_scale(preprocessing, d)
    bought, below, above = reach_of_means(noisy, preprocessing, release._row_bound)
    return {
        "names": described.names,
        "level": level,
        "n": noisy.n,
        "described": {name: _shortened(getattr(described, name)) for name in _DESCRIBED}
        | {
            name: [_shortened(row) if np.isfinite(row).all() else None for row in getattr(described, name)]
            for name in _QUARTILES
        },
        "second": _triangle(noisy.second),
        "mean": total_mean(noisy).tolist(),
        "noise": asdict(noisy.noise),
        "scale": scale.tolist(),
        "location": location.tolist(),
        "standard": {"scale": standard.scale.tolist(), "variances": standard.variances.tolist()},
        "in_pairs": noisy.pairs is not None,
        "missing": release._absent,
        "unseen": " ".join(of_unseen(described.unseen, "tails ", "means and deviations")),
        "correlation": {name: _triangle(getattr(correlation, name), _shortened) for name in ("values", "low", "high")},
        "pca": pca,
        "clipping": None if noisy.clipping is None else _clipping(noisy.clipping),
        "means": {"bought": bought.tolist(), "below": below.tolist(), "above": above.tolist()},
        "normal": float(scipy.special.ndtri(tail)),
        "student": scipy.special.stdtrit(freedom, tail).tolist(),
        "indicators": release.model.indicators,
        "dates": release.model._dates,
        "categories": [*_categories(release, mapped, tail)] if "crosstab" in release._questions() else [],
        "questions": release._questions(),
        "warnings": [*dict.fromkeys(said)],
        "guarantee": _guarantee(release, about),
    }


def _judged(release: Any, standardize: bool) -> dict[str, Any]:
    """Of components of all columns, the edge of the noise, and how many stand out of it."""
    try:
        found = release.pca(n_components=min(release.model.n_features, _EDGES), standardize=standardize).diagnostics
    except np.linalg.LinAlgError:  # all columns are constant
        return {"edge": None, "found": 0}
    return {"edge": np.array(found.noise_edge).tolist(), "found": found.lost.count(False)}


def _categories(release: ReleasedColumns, mapped: Mapped, tail: float) -> Iterator[dict[str, Any]]:
    """The categorical columns, once each."""
    noisy, _ = mapped
    for group, name in {group: name for name, group in release._categories.items() if group}.items():
        places = np.array(group, dtype=np.intp)
        found = Variables.of_category(release, name, places, mapped)
        freedom, (axes, along) = max(noisy.n - len(found.labels), 1.0), found.whitened(noisy)
        yield {
            "name": name,
            "labels": found.labels,
            "places": group,
            **{part: getattr(found, part).tolist() for part in ("forms", "offsets", "restored")},
            "least": found.least,
            "axes": axes.tolist(),
            "along": along.tolist(),
            "freedom": freedom,
            "log_beta": float(scipy.special.betaln(freedom / 2, max(len(along), 1) / 2)),
            "student": float(scipy.special.stdtrit(freedom, tail)),
        }


def _guarantee(release: Any, about: dict[str, Any]) -> dict[str, Any]:
    report, document = release.report, document_of(release.report, **about)
    return {
        "statement": document.statement,
        "rows": key_rows(report),
        "risk": risk_sentences(report, *astuple(document.risk)),
        "assumptions": document.assumptions,
        "ledger": [LEDGER, *ledger_rows(report.releases, report.mu)],
        "signature": SIGNATURE,
        "sha256": document.sha256,
        "report": document.to_json(),
    }


def _clipping(clipping: Clipping) -> dict[str, Any]:
    parts = {name: getattr(clipping, name).tolist() for name in ("lost", "most")}
    return {"covariance": _triangle(clipping.covariance), **parts, "doubt": clipping.doubt}


def _triangle(matrix: Matrix, written: Any = np.ndarray.tolist) -> list[list[float]]:
    """The rows of a symmetric matrix, up to the diagonal."""
    return [written(row[: i + 1]) for i, row in enumerate(matrix)]


def _shortened(values: Matrix) -> list[float]:
    """To twelve digits."""
    return [float(f"{value:.12g}") for value in values.tolist()]
