"""Every public way in: what a caller may do with people, and all of it that a caller sees.

A new public name that takes people, a source, a command or an estimator that none of them covers fails
test_replay_ways.py; so does docs/audits.md, if its table is another one than `table_of_ways` makes.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import pickle
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import dask.dataframe
import fake_spark
import numpy as np
import pyarrow.parquet
from elsewhere import moments
from replay_forms import BATCH, FORMS, Form, X, Y, csv_of, csv_types, scanned, table_of, typed_frame, typed_polars
from replay_people import ADJACENCIES, BOUND, CLASSES, REGIONS, Pair, People, draw_pair
from scipy.sparse.linalg import eigsh
from sklearn.pipeline import make_pipeline
from stored import bytes_of

import dpgep
from dpgep import cli, masked
from dpgep import sklearn as estimators
from dpgep.local import Aggregator, GaussianRandomizer
from dpgep.models.row_model import Classes, input_names
from dpgep.results.score_density import normal_scores

MU = 1.0
_SLICES: dict[str, Any] = {"slices": 3, "y_range": (-1.0, 1.0)}
_CLIPPING: dict[str, dict[str, Any]] = {
    "known": {"bound": BOUND},
    "bought": {"preprocessing": dpgep.AutoPreprocessing(missing="center")},
}


@dataclass(frozen=True)
class Terms:
    """What is public about a run."""

    adjacency: Any
    bound: str
    folder: Path

    @property
    def of_problem(self) -> dict[str, Any]:
        return {"adjacency": self.adjacency, **_CLIPPING[self.bound]}

    @property
    def takes_holes(self) -> bool:
        return self.bound != "known"


@dataclass(frozen=True)
class Way:
    """A way in.

    Attributes
    ----------
    call : ``call(people, terms)`` is what a caller sees.
    covers : the public names, classes of sources, commands and estimators that it is about.
    bounds, adjacencies : with which it is taken.
    holes : whether values may be missing, where the bound admits it.
    at_end : whether a person who comes is the last one, since places say who belongs where.
    claimed_mu : where no ledger says it.
    public : what the documentation calls public about people, in this form: neighbours have the same.
    """

    group: str
    name: str
    call: Callable[[People, Terms], Any]
    covers: tuple[str, ...]
    bounds: tuple[str, ...] = ("known", "bought")
    adjacencies: tuple[str, ...] = ADJACENCIES
    holes: bool = True
    at_end: bool = False
    claimed_mu: float | None = None
    public: Callable[[People], Any] | None = None

    def __repr__(self) -> str:
        return f"{self.group}, {self.name}"

    def terms(self, folder: Path) -> list[Terms]:
        return [Terms(adjacency, bound, folder) for adjacency in self.adjacencies for bound in self.bounds]

    def pair(self, random: Random, terms: Terms, sizes: Sequence[int] = range(12)) -> Pair:
        """Neighbours whom this way takes: see `draw_pair`."""
        holes = self.holes and terms.takes_holes
        while True:
            pair = draw_pair(random, terms.adjacency, sizes, holes=holes, at_end=self.at_end)
            if self.public is None or self.public(pair.before) == self.public(pair.after):
                return pair

    def replay(self, pair: Pair, terms: Terms) -> dpgep.auditing.ReplayResult:
        return dpgep.auditing.replay(partial(self._run, terms), (pair.before, pair.after), mu=self.claimed_mu)

    def _run(self, terms: Terms, people: People) -> Any:
        for each in terms.folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        return self.call(people, terms)


def ways() -> list[Way]:
    """All of them."""
    return [
        *_forms(),
        *_methods(),
        *_releases(),
        *_sums(),
        *_nights(),
        *_elsewhere(),
        *_estimators(),
        *_commands(),
        *_budgets(),
    ]


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "pca": lambda given, **terms: dpgep.pca(given.x, **terms),
    "cca": lambda given, **terms: dpgep.cca(given.x, given.y, **terms),
    "pls": lambda given, **terms: dpgep.pls(given.x, given.y, **terms),
    "multiset_cca": lambda given, **terms: dpgep.multiset_cca([given.x, given.y], **terms),
    "fda": lambda given, **terms: dpgep.fda(given.x, given.labels, classes=given.classes, **terms),
    "sir": lambda given, **terms: dpgep.sir(given.x, given.response, **_SLICES, **terms),
    "contrastive_pca": lambda given, **terms: dpgep.contrastive_pca(
        given.x, given.labels, target=given.classes[0], background=given.classes[1], **terms
    ),
}


def _forms() -> Iterator[Way]:
    """What problems take, each with every builder."""
    for name, form in FORMS.items():
        for question, make in _QUESTIONS.items():
            covers = (question, "solve", *form.sources, *(("scan",) if form.sources else ()))
            bounds = ("known",) if form.once else ("known", "bought")
            call = partial(_solved, form, make, {})
            yield Way(name, question, call, covers, bounds, form.adjacencies, form.holes, public=form.public)
    yield Way("standardized", "pca", partial(_solved, FORMS["pandas"], _standardized, {}), ("pca",))
    uncentred = partial(_solved, FORMS["polars"], _uncentred, {})
    yield Way("uncentred", "pca", uncentred, ("pca",))
    yield Way("matrices", "gep", _of_matrices, ("gep",), ("known",), ("replace-one",))
    for name, auto in _AUTOS.items():
        call = partial(_solved, FORMS["scan of pandas"], partial(_bought, auto), {})
        yield Way("AutoPreprocessing", name, call, ("AutoPreprocessing",), ("bought",))
    for name, question in _IN_PAIRS.items():
        call = partial(_solved, FORMS["scan of pandas"], question, {})
        yield Way('missing="pairwise"', name, call, ("AutoPreprocessing",), ("bought",))
    for name, declare in _DECLARATIONS.items():
        yield Way("labels that declare their classes", name, partial(_declared, declare), ("fda",), ("known",))
    counted = partial(_solved, FORMS["Arrow table"], _of_about_ten, {})
    yield Way("public_n", "cca", counted, ("cca",), adjacencies=("add-remove",))


_AUTOS = {
    "ranges": dpgep.AutoPreprocessing(ranges={"a": (-3.0, 3.0), "joined": (0.0, 30_000.0)}, missing="center"),
    "shares": dpgep.AutoPreprocessing(share=0.3, quantile=0.9, missing="center"),
    "full preconditioning": dpgep.AutoPreprocessing(precondition="full", missing="center"),
    "none": dpgep.AutoPreprocessing(precondition=None, missing="center"),
}
_PAIRWISE = dpgep.AutoPreprocessing(missing="pairwise")
_IN_PAIRS: dict[str, Callable[..., Any]] = {
    "pca": lambda given, adjacency, preprocessing: dpgep.pca(given.x, adjacency=adjacency, preprocessing=_PAIRWISE),
    "pca standardized": lambda given, adjacency, preprocessing: dpgep.pca(
        given.x, standardize=True, adjacency=adjacency, preprocessing=_PAIRWISE
    ),
}
_DECLARATIONS: dict[str, Callable[[People], Any]] = {
    "pandas": lambda people: typed_frame(people)["label"],
    "polars": lambda people: typed_polars(people)["label"],
    "booleans": lambda people: np.array([label == "yes" for label in people.labels], dtype=bool),
}


def _bought(auto: dpgep.AutoPreprocessing, given: Any, *, adjacency: Any, preprocessing: Any) -> Any:
    return dpgep.cca(given.x, given.y, adjacency=adjacency, preprocessing=auto)


def _declared(declare: Callable[[People], Any], people: People, terms: Terms) -> Any:
    problem = dpgep.fda(people.rows, declare(people), **terms.of_problem)
    return dpgep.solve(problem, mu=MU)


def _of_about_ten(given: Any, **terms: Any) -> Any:
    return dpgep.cca(given.x, given.y, public_n=10, **terms)


def _standardized(given: Any, **terms: Any) -> Any:
    return dpgep.pca(given.x, standardize=True, **terms)


def _uncentred(given: Any, **terms: Any) -> Any:
    return dpgep.pca(given.x, center=False, **terms)


def _solved(form: Form, make: Callable[..., Any], options: dict[str, Any], people: People, terms: Terms) -> Any:
    problem = make(form.make(people, terms.folder), **terms.of_problem)
    return repr(problem), dpgep.solve(problem, mu=MU, n_components=1, **options)


def _of_matrices(people: People, terms: Terms) -> Any:
    lengths = np.hypot.reduce(people.rows, axis=1, keepdims=True)
    rows = people.rows / np.maximum(lengths, BOUND)
    n = len(rows)
    problem = dpgep.gep(rows.T @ rows / n, n=n, sensitivity_a=1.5)  # for sqrt(2), and rounding
    return dpgep.solve(problem, mu=MU, n_components=1)


_SEVERAL_PASSES = (
    "arrays of float32", "SciPy's CSR", "list of batches", "function that returns batches", "Parquet folder",
    "scan of polars", "CSV file", "Zarr", "Dask arrays", "rows that pass a filter",
)  # fmt: skip
_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "two threads": ("pca", {"n_threads": 2}),
    "products": ("pca", {"storage": "operator"}),
    "screen": ("pca", {"screen": 2}),
    "screen of two views": ("cca", {"screen": 2}),
    "flow": ("fda", {"method": "rayleigh-flow", "n_iterations": 2, "init": "screen"}),
    "sparse flow": ("sir", {"method": "truncated-rayleigh-flow", "sparsity": 1, "n_iterations": 2}),
    "clipped power": ("pca", {"method": "clipped-power", "n_iterations": 2}),
}
_OF_PUBLIC_N = "clipped power"


def _methods() -> Iterator[Way]:
    """What else reads sources: methods of several passes, by products and screens, and threads."""
    for name in _SEVERAL_PASSES:
        form = FORMS[name]
        for method, (question, options) in _METHODS.items():
            call, covers = partial(_solved, form, _QUESTIONS[question], options), ("solve", *form.sources)
            adjacencies = tuple(each for each in form.adjacencies if each == "replace-one" or method != _OF_PUBLIC_N)
            if adjacencies:
                yield Way(name, method, call, covers, ("known",), adjacencies, form.holes, public=form.public)


def _releases() -> Iterator[Way]:
    """What is released once and asked often."""
    yield Way("release", "every question", partial(_asked, {}), ("release", "Release"))
    yield Way("release", "every question of classes", partial(_asked, {"classes": CLASSES}), ("release",))
    by_group = {"classes": CLASSES, "by_group": True}
    yield Way("release", "every question of classes, by group", partial(_asked, by_group), ("release",))
    yield Way("release", "every question of slices", partial(_asked, _SLICES), ("release",))
    yield Way("score plot", "pca", partial(_scored, "pca"), ("score_density",), adjacencies=("replace-one",))
    yield Way("score plot", "cca", partial(_scored, "cca"), ("score_density",), adjacencies=("replace-one",))
    yield Way("score plot", "one score", partial(_scored, "fda"), ("score_density",), adjacencies=("replace-one",))
    yield Way("score plot", "sir", partial(_scored, "sir"), ("score_density",), adjacencies=("replace-one",))
    yield Way("release", "of two populations", _added, ("release", "Release"), ("known",), at_end=True)
    yield Way("release as an operator", "pca", partial(_multiplied, "pca"), ("release", "MatrixFreeRelease"))
    yield Way("release as an operator", "fda", partial(_multiplied, "fda"), ("release", "MatrixFreeRelease"))


def _scored(question: str, people: People, terms: Terms) -> Any:
    problem = _QUESTIONS[question](FORMS["scan of pandas"].make(people, terms.folder), **terms.of_problem)
    try:
        solution = dpgep.solve(problem, mu=MU / math.sqrt(2), n_components=1 if question == "fda" else 2)
    except np.linalg.LinAlgError:  # noise leaves no components
        return None
    found = dpgep.score_density(solution, problem, cells=16, mu=MU / math.sqrt(2))
    return solution, found, found.density, normal_scores(solution, None), repr(found), dpgep.load(bytes_of(found))


def _asked(groups: dict[str, Any], people: People, terms: Terms) -> Any:
    given = FORMS["scan of pandas"].make(people, terms.folder)
    answers: list[Callable[[Any], Any]] = [lambda asked: asked.pca(n_components=1, standardize=True), _page_of]
    beside: dict[str, Any] = {}
    if not groups:
        answers += [
            lambda asked: asked.pca(X, sparsity=1, n_components=1),
            lambda asked: asked.cca(["a", "b"], ["c", "region=north"], n_components=1),
            lambda asked: asked.cca(["a"], ["c", "region=north"], given=["b"], n_components=1),
            lambda asked: asked.pls(["a"], ["joined", "c"], n_components=1),
            lambda asked: (asked.mean(), asked.mean_intervals(X), asked.covariance(X), asked.correlation(X)),
            lambda asked: (asked.describe(), asked.crosstab("region"), asked.means_by("region")),
            lambda asked: (asked.partial_correlation(X), asked.graph(X), asked.factors(X, n_factors=1)),
            lambda asked: asked.regression("a", on=["b", "joined"]),
            lambda asked: asked.regression_path("a", on=["b", "joined"]),
            lambda asked: asked.instrumental("a", on=["b"], instruments=["joined"]),
            lambda asked: asked.mca(["region"]),
            lambda asked: asked.redundancy(["a", "b"], ["region", "joined"]).intervals(),
            lambda asked: asked.famd(),
            lambda asked: asked.sample(5, seed=1),
        ]
    elif "classes" in groups:
        beside = {"labels": given.labels}
        answers += [
            lambda asked: asked.fda(X),
            lambda asked: (asked.classifier(X), asked.manova(X)),
            lambda asked: asked.contrastive_pca(X, target=CLASSES[1], background=CLASSES[0], n_components=1),
            lambda asked: asked.of_group(CLASSES[0]).pca(X, n_components=1),
            lambda asked: asked.common_spatial_patterns(X, target=CLASSES[0], background=CLASSES[1]),
            lambda asked: (asked.central_subspace(X, by="save").intervals(), asked.fair_pca(X, n_components=1)),
            lambda asked: asked.quadratic_classifier(X),
            lambda asked: asked.of_group(CLASSES[1]).describe(X),
            lambda asked: asked.sample(5, seed=1),
        ]
    else:
        beside = {"y": given.response}
        answers += [lambda asked: asked.sir(X, n_components=1)]
    options = {
        **terms.of_problem,
        "preprocessing": dpgep.AutoPreprocessing(missing="center", precondition="columns", quartiles=0.1),
    }
    terms_of_release = options if terms.takes_holes else terms.of_problem
    released: dpgep.Release = dpgep.release(given.x, **beside, **groups, **terms_of_release, mu=MU)
    again = dpgep.load(bytes_of(released))
    seen = [_answered(answer, again) for answer in answers]
    return released, seen, str(released), str(again.report), again.report.to_html(), again.fingerprint, again.n_people


def _page_of(asked: dpgep.Release) -> bytes:
    page = io.BytesIO()
    asked.to_html(page)
    return page.getvalue()


def _answered(question: Callable[[Any], Any], release: Any) -> Any:
    """An answer, or the reason why noise leaves none."""
    try:
        return question(release)
    except (ValueError, np.linalg.LinAlgError) as error:
        return error


def _added(people: People, terms: Terms) -> Any:
    """The first people of one site, all others of another."""
    parts = [people.part(0, 3), people.part(3, len(people))]
    one, two = (dpgep.release(dpgep.pca(part.rows, **terms.of_problem), mu=MU) for part in parts)
    both = one + two
    return both, both.solve(1)


def _multiplied(question: str, people: People, terms: Terms) -> Any:
    problem = _QUESTIONS[question](FORMS["list of batches"].make(people, terms.folder), **terms.of_problem)
    operator = dpgep.release(problem, mu=MU, storage="operator")
    block = np.eye(operator.n_features)[:, :2]
    seen = [operator.times(block), operator.a @ block[:, 1], operator.privacy, repr(operator)]
    if question == "pca":
        seen.append(eigsh(operator.a, k=1, which="LA", v0=block[:, 0]))
    return seen, operator.solve(1, method="rayleigh-flow", n_iterations=2)


_EACH = [
    dpgep.models.PcaModel(3, center=True),
    dpgep.models.StandardizedPcaModel(3, center=True),
    dpgep.models.CcaModel((3, 2), center=True),
    dpgep.models.PlsModel((3, 2), center=False),
    dpgep.models.MultisetCcaModel((3, 2), center=True),
    dpgep.models.FdaModel(3, CLASSES),
    dpgep.models.SirModel(3, (0.0, 0.5)),
    dpgep.models.ContrastivePcaModel(3, Classes(CLASSES), 0.5),
    dpgep.models.TableModel(3),
]
_MODELS: dict[str, Any] = {type(model).__name__: model for model in _EACH}


def _sums() -> Iterator[Way]:
    """Exact sums that are kept, merged, sent and masked, and then released."""
    for name in _MODELS:
        bounds = ("known", "reused")
        yield Way("Moments", name, partial(_merged, name), ("Moments", "load", name), bounds)
        covers = ("masked", "masked.Terms", "masked.Site", "masked.release")
        yield Way("masked", name, partial(_masked, name), covers, bounds, at_end=True)


def _nights() -> Iterator[Way]:
    """Some people each night; or all of them, twice."""
    for name in ("TableModel", "CcaModel", "FdaModel", "SirModel"):
        yield Way("Nights", name, partial(_nightly, name), ("Nights",), ("known", "reused"), at_end=True)
    yield Way("Nights", "a table", _nights_of_a_table, ("Nights",), at_end=True)
    yield Way("Nights", "people who come again", _nights_of_the_same, ("Nights",))


def _nightly(name: str, people: People, terms: Terms) -> Any:
    model, second = _MODELS[name], _second_of(name)
    nights = dpgep.Nights(terms.folder / "a.nights", keep=2, model=model, mu=MU, **_of_moments(name, terms))
    seen = []
    for night, part in enumerate(_of_nights(people)):
        given = FORMS["arrays of float64"].make(part, terms.folder)
        beside = () if second is None else (getattr(given, second),)
        seen.append(nights.add(given.x, *beside, night=str(night)))
    return seen, nights.release(last="0"), nights.release(nights.labels[-1]), nights.labels


def _of_nights(people: People) -> list[People]:
    """Those of three nights, whose number is public."""
    return [people.part(0, 3), people.part(3, 5), people.part(5, len(people))]


def _nights_of_a_table(people: People, terms: Terms) -> Any:
    nights = dpgep.Nights(terms.folder / "a.nights", keep=1, mu=MU, **terms.of_problem)
    parts = [FORMS["pandas"].make(part, terms.folder).x for part in _of_nights(people)]
    return [nights.add(part, night=str(night)) for night, part in enumerate(parts)]


def _nights_of_the_same(people: People, terms: Terms) -> Any:
    given = FORMS["pandas"].make(people, terms.folder)
    nights = dpgep.Nights(terms.folder / "a.nights", nights=2, person="who", mu=MU, **terms.of_problem)
    return [nights.add(given.x, person=np.arange(len(people)), night=night) for night in ("one", "two")]


def _second_of(name: str) -> str | None:
    """What stands beside the rows of a model."""
    model = _MODELS[name]
    return {"labels": "labels", "y": "response"}.get(input_names(model)[-1], "y" if len(model.views) > 1 else None)


def _of_moments(name: str, terms: Terms) -> dict[str, Any]:
    """The public facts; preprocessing has scales where they do not change the answer."""
    if terms.bound == "known":
        return terms.of_problem
    d = _MODELS[name].n_features
    scale = None if name in ("PcaModel", "PlsModel") else np.linspace(0.5, 2.0, d)
    location = None if name == "PlsModel" else np.linspace(0.1, 0.3, d)
    preprocessing = dpgep.Preprocessing(2.0, location, scale, largest=3.0, missing=True)
    return {"adjacency": terms.adjacency, "preprocessing": preprocessing}


def _summed(name: str, people: People, terms: Terms) -> Any:
    """Moments, batch by batch."""
    second = _second_of(name)
    moments = dpgep.Moments(_MODELS[name], **_of_moments(name, terms))
    for part in people.batches(BATCH):
        given = FORMS["arrays of float64"].make(part, terms.folder)
        moments.update(given.x, None if second is None else getattr(given, second))
    return moments


def _merged(name: str, people: People, terms: Terms) -> Any:
    half = len(people) // 2
    whole, rest = (_summed(name, part, terms) for part in (people.part(0, half), people.part(half, len(people))))
    whole.merge(rest)
    again = dpgep.load(bytes_of(whole))
    again.save(terms.folder / "people.moments")
    released = dpgep.release(dpgep.load(terms.folder / "people.moments"), mu=MU)
    return released if name == "TableModel" else (released, dpgep.solve(again, mu=MU, n_components=1))


def _masked(name: str, people: People, terms: Terms) -> Any:
    """Two sites, of which the first has three people. Messages are masks, and drawn anew in each run."""
    agreed = masked.Terms(
        _MODELS[name], sites=("one", "two"), colluding=1, session="replay", mu=MU, **_of_moments(name, terms)
    )
    sites = {site: masked.Site(agreed, site) for site in agreed.sites}
    keys = {site: each.key for site, each in sites.items()}
    parts = {"one": people.part(0, 3), "two": people.part(3, len(people))}
    messages = {site: sites[site].mask(_summed(name, part, terms), keys) for site, part in parts.items()}
    return masked.release(agreed, keys, messages)


def _elsewhere() -> Iterator[Way]:
    """Sums that are made where the rows are."""
    for name in _MODELS:
        bounds = ("known", "reused")
        yield Way("Moments of Dask", name, partial(_of_dask, name), ("Moments",), bounds)
        yield Way("Moments of Spark", name, partial(_of_spark, name), ("Moments",), bounds)
    parquet = partial(_of_dask_parquet, "FdaModel")
    covers = ("Moments", "ParquetPart")
    yield Way("Moments of Dask", "FdaModel of Parquet", parquet, covers, ("known", "reused"))
    for question in _QUESTIONS:
        yield Way("Spark", question, partial(_in_spark, question), ("scan", "SparkFrame"))
    for name, (question, options) in _METHODS.items():
        adjacencies = ("replace-one",) if name == _OF_PUBLIC_N else ADJACENCIES
        yield Way("Spark", name, partial(_in_spark, question, **options), ("SparkFrame",), ("known",), adjacencies)
    covers = ("local", "GaussianRandomizer", "Aggregator")
    mu = _randomizer().mechanism.mu
    yield Way("local", "reports", _reported, covers, ("known",), ("replace-one",), claimed_mu=mu)
    yield Way("local", "simulated", _simulated, ("solve",), ("known",), ("replace-one",))


_SECOND = {None: None, "y": Y, "labels": "label", "response": "response"}


def _of_dask(name: str, people: People, terms: Terms) -> Any:
    model = _MODELS[name]
    second = {"labels": "labels", "y": "response"}.get(input_names(model)[-1], "y" if len(model.views) > 1 else None)
    frame = dask.dataframe.from_pandas(typed_frame(people), npartitions=max(1, len(people) // BATCH))
    sums = moments(model, frame, _SECOND[second], columns=X, **_of_moments(name, terms))
    return dpgep.release(sums, mu=MU)


def _of_dask_parquet(name: str, people: People, terms: Terms) -> Any:
    model = _MODELS[name]
    second = {"labels": "labels", "y": "response"}.get(input_names(model)[-1], "y" if len(model.views) > 1 else None)
    paths = [str(terms.folder / f"{i}.parquet") for i in range(2)]
    for path, part in zip(paths, (people.part(0, BATCH), people.part(BATCH, len(people))), strict=True):
        pyarrow.parquet.write_table(table_of(part), path)
    sums = moments(model, paths, _SECOND[second], columns=X, client="threads", **_of_moments(name, terms))
    return dpgep.release(sums, mu=MU)


def _spark_frame(people: People) -> fake_spark.DataFrame:
    return fake_spark.DataFrame([table_of(part) for part in people.batches(BATCH)])


def _of_spark(name: str, people: People, terms: Terms) -> Any:
    model = _MODELS[name]
    second = {"labels": "labels", "y": "response"}.get(input_names(model)[-1], "y" if len(model.views) > 1 else None)
    with fake_spark.in_place_of_pyspark():
        frame = _spark_frame(people)
        sums = moments(model, frame, _SECOND[second], columns=X, **_of_moments(name, terms))
        return dpgep.release(sums, mu=MU)


def _in_spark(question: str, people: People, terms: Terms, **options: Any) -> Any:
    with fake_spark.in_place_of_pyspark():
        form = Form(lambda people, folder: scanned(_spark_frame(people)))
        return _solved(form, _QUESTIONS[question], options, people, terms)


def _randomizer() -> GaussianRandomizer:
    return GaussianRandomizer(3, BOUND, epsilon=2.0, delta=1e-6)


def _reported(people: People, terms: Terms) -> Any:
    """What everybody sends, and what a server makes of it."""
    client, server = _randomizer(), Aggregator(3, BOUND, epsilon=2.0, delta=1e-6)
    reports = [client.randomize_rows(people.rows[:-1, :3]), client.randomize(people.rows[-1, :3])]
    sent = [each.to_bytes() for each in reports]
    for each in sent:
        server.add(each)
    again = dpgep.load(bytes_of(server))
    return sent, again.second_moment(), again.solve(1), again.solve_sparse(1)


def _simulated(people: People, terms: Terms) -> Any:
    problem = dpgep.pca(people.rows, center=False, **terms.of_problem)
    return dpgep.solve(problem, mu=MU, n_components=1, method="local-gaussian")


_FITS: dict[str, tuple[dict[str, Any], str | None]] = {
    "PrivatePCA": ({"n_components": 1, "standardize": True}, None),
    "PrivateCCA": ({"n_components": 1}, "y"),
    "PrivatePLS": ({"n_components": 1}, "y"),
    "PrivateFDA": ({"classes": list(CLASSES)}, "labels"),
    "PrivateSIR": ({"n_components": 1, **_SLICES}, "response"),
    "PrivateScaler": ({}, None),
}


def _estimators() -> Iterator[Way]:
    """Fits: the estimators, pickled, and all that hangs on them."""
    for name in _FITS:
        for form in ("arrays of float64", "arrays of float32", "pandas"):
            bounds = ("bought",) if name == "PrivateScaler" else ("known", "bought")
            holes = _FITS[name][1] != "y"
            yield Way(name, form, partial(_fitted, name, form), ("sklearn", name), bounds, holes=holes)
    yield Way("PrivatePCA", "a share of the variance", _share_of_variance, ("PrivatePCA",))
    yield Way("PrivatePCA", "after a PrivateScaler", _in_pipeline, ("PrivatePCA", "PrivateScaler"), ("known",))


def _fitted(name: str, form: str, people: People, terms: Terms) -> Any:
    options, second = _FITS[name]
    given = FORMS[form].make(people, terms.folder)
    x = given.x[X] if form == "pandas" else given.x
    clipping = {"missing": "center"} if name == "PrivateScaler" else _CLIPPING[terms.bound]
    budget = dpgep.Budget(mu=MU)
    estimator = getattr(estimators, name)(budget=budget, adjacency=terms.adjacency, **clipping, **options)
    estimator.fit(x, None if second is None else getattr(given, second))
    return vars(pickle.loads(pickle.dumps(estimator))), repr(estimator), budget.remaining_mu, budget.releases


def _share_of_variance(people: People, terms: Terms) -> Any:
    """How many components there are follows from a release; a covariance, or none, from these."""
    options = {"delta": 1e-6, "adjacency": terms.adjacency, **_CLIPPING[terms.bound]}
    fitted = estimators.PrivatePCA(0.5, epsilon=0.5, **options).fit(FORMS["pandas"].make(people, terms.folder).x[X])
    return vars(fitted), _answered(estimators.PrivatePCA.get_covariance, fitted)


def _in_pipeline(people: People, terms: Terms) -> Any:
    """Scaled rows are private to nobody but the next step, whose rows lie as released numbers say."""
    budget = {"delta": 1e-6, "adjacency": terms.adjacency}
    scaler = estimators.PrivateScaler(epsilon=0.5, missing="error", **budget)
    last = estimators.PrivatePCA(1, epsilon=0.5, bound=2.0, **budget)
    pipeline = make_pipeline(scaler, last).fit(people.rows)
    return [vars(step) for step in pipeline.named_steps.values()]


_DATA = ["--columns", "a,b,c,region,joined", "--categories", f"region={','.join(REGIONS)}", "--dates", "joined"]
_COMMANDS: dict[str, list[str]] = {
    "pca": [*_DATA, "--standardize"],
    "cca": ["--x-columns", "a,b,c", "--y-columns", "p,q"],
    "pls": ["--x-columns", "a,b,c", "--y-columns", "p,q"],
    "multiset-cca": ["--view", "a,b", "--view", "c", "--view", "p,q"],
    "fda": [*_DATA, "--labels", "label", "--classes", ",".join(CLASSES)],
    "contrastive-pca": [*_DATA, "--labels", "label", "--target", CLASSES[0], "--background", CLASSES[1]],
    "sir": [*_DATA, "--response", "response", "--slices", "3", "--y-range=-1:1"],
    "release": [*_DATA, "--labels", "label", "--classes", ",".join(CLASSES)],
}


def _commands() -> Iterator[Way]:
    """Commands: their status, what they print, and the files that they write."""
    for name in _COMMANDS:
        for suffix in ("csv", "parquet"):
            kind, public = ("CSV", csv_types) if suffix == "csv" else ("Parquet", None)
            yield Way(f"dpgep {name}", kind, partial(_command, name, suffix), (f"dpgep {name}",), public=public)
    more: dict[str, tuple[Callable[[People, Terms], Any], dict[str, Any]]] = {
        "rows that pass a filter": (
            partial(_command, "pca", "csv", filter="a > -0.5 and region != 'south'"), {"adjacencies": ("add-remove",)}
        ),
        "with a report": (_command_and_report, {}),
        "from a budget in a file": (_command_and_budget, {}),
        "dry run": (partial(_command, "pca", "csv", dry=True), {"bounds": ("bought",)}),
    }  # fmt: skip
    for name, (call, given) in more.items():
        yield Way("dpgep pca", name, call, ("dpgep pca", "dpgep report", "dpgep budget"), public=csv_types, **given)
    yield Way("dpgep scores", "Parquet", _scores_command, ("dpgep scores",), adjacencies=("replace-one",), at_end=True)
    yield Way("dpgep nights", "Parquet", _nightly_command, ("dpgep nights",), at_end=True)


def _write(people: People, folder: Path, suffix: str, name: str = "people") -> str:
    path = folder / f"{name}.{suffix}"
    if suffix == "csv":
        path.write_text(csv_of(people), encoding="utf-8")
    else:
        pyarrow.parquet.write_table(table_of(people), path)
    return str(path)


def _words(terms: Terms) -> list[str]:
    return ["--bound", "1"] if terms.bound == "known" else ["--missing", "center"]


def _dpgep(*words: str) -> int:
    """The exit status of a command."""
    try:
        return cli.main(list(words))
    except SystemExit as stop:
        return int(str(stop.code))


def _command(
    name: str, suffix: str, people: People, terms: Terms, *, filter: str | None = None, dry: bool = False
) -> Any:
    out, data = terms.folder / "answer", _write(people, terms.folder, suffix)
    words = [name, data, *_COMMANDS[name], *_words(terms), "--adjacency", terms.adjacency, "--mu", str(MU)]
    words += [] if filter is None else ["--filter", filter]
    words += [] if name in ("release", "fda") else ["--n-components", "1"]
    status = _dpgep(*words, *(["--dry-run", "--people", "5"] if dry else ["-o", str(out)]))
    answer = _bytes_of(terms.folder, "answer")
    if name == "release" and answer is not None:
        answer = dpgep.load(answer)  # of the bytes, a checksum holds a name drawn at random
    return status, answer, sorted(each.name for each in terms.folder.iterdir())


def _scores_command(people: People, terms: Terms) -> Any:
    """A solution, and the scores of its people, of half of mu^2 each; a histogram as it is loaded."""
    data, solution, out = _write(people, terms.folder, "parquet"), terms.folder / "solution", terms.folder / "answer"
    paid = ["--adjacency", terms.adjacency, "--mu", str(MU / math.sqrt(2))]
    first = _dpgep(
        "pca", data, *_COMMANDS["pca"], *_words(terms), *paid, "--n-components", "2", "-o", str(solution), "--force"
    )
    second = _dpgep("scores", str(solution), data, *paid, "--cells", "16", "-o", str(out), "--force")
    kept = [_bytes_of(terms.folder, name) for name in ("solution", "answer")]
    return first, second, kept[0], None if kept[1] is None else dpgep.load(kept[1])


def _nightly_command(people: People, terms: Terms) -> Any:
    """A morning's release, as a file and from the file of the nights; whose bytes are confidential."""
    file, out = str(terms.folder / "a.nights"), terms.folder / "answer"
    asked = [*_DATA, *_words(terms), "--adjacency", terms.adjacency, "--mu", str(MU), "--keep", "2", "--force"]
    seen: list[Any] = []
    for night, part in enumerate(_of_nights(people)):
        data = _write(part, terms.folder, "parquet", f"night-{night}")
        seen.append(_dpgep("nights", "add", file, data, *asked, "-o", str(out)))
        seen.append(dpgep.load(out) if out.exists() else None)
    return seen, _dpgep("nights", "release", file, "--last", "night-1")


def _command_and_report(people: People, terms: Terms) -> Any:
    seen = [_command("pca", "csv", people, terms)]
    out, report = str(terms.folder / "answer"), str(terms.folder / "report.json")
    if Path(out).exists():
        seen += [_dpgep("report", out, "--html"), _dpgep("report", out, "--json", "-o", report)]
        seen += [_dpgep("report", "verify", report), Path(report).read_bytes()]
    return seen


def _command_and_budget(people: People, terms: Terms) -> Any:
    file, data = str(terms.folder / "people.budget"), _write(people, terms.folder, "csv")
    asked = [data, *_COMMANDS["pca"], *_words(terms), "--n-components", "1", "--budget", file]
    seen: list[Any] = [
        _dpgep("budget", "init", file, "--mu", "1", "--adjacency", terms.adjacency, "--dataset", "people"),
        _dpgep("pca", *asked, "--share", "0.5", "-o", str(terms.folder / "one")),
        _dpgep("pca", *asked, "--share", "0.6", "-o", str(terms.folder / "two")),
    ]
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        seen.append(_dpgep("budget", "show", file))
    without_times = re.sub(r"(?m)^[-\d]+T[:\d]+\S*", "", shown.getvalue())
    return seen, without_times, records(Path(file)), _bytes_of(terms.folder, "one")


def _bytes_of(folder: Path, name: str) -> bytes | None:
    path = folder / name
    return path.read_bytes() if path.exists() else None


def records(file: Path) -> list[Any]:
    """The records of a budget, but when and by whom they were written, and the hashes that hold this too."""
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        kept.append({key: each for key, each in record.items() if key not in ("time", "process", "hash", "previous")})
    return kept


def _budgets() -> Iterator[Way]:
    """Several runs that one budget pays for."""
    yield Way("Budget", "in memory", partial(_from_budget, lasting=False), ("Budget", "solve", "release"))
    yield Way("Budget", "in a file", partial(_from_budget, lasting=True), ("Budget",))


def _from_budget(people: People, terms: Terms, *, lasting: bool) -> Any:
    file = terms.folder / "people.budget"
    given: dict[str, Any] = {"mu": MU, "adjacency": terms.adjacency}
    budget = dpgep.Budget.open(file, dataset="people", **given) if lasting else dpgep.Budget(**given)
    rows = people.rows[:, :3]
    solution = dpgep.solve(dpgep.pca(rows, **terms.of_problem), budget=budget, share=0.5, n_components=1)
    released = dpgep.release(rows, **terms.of_problem, budget=budget, share=0.25)
    try:
        dpgep.solve(dpgep.pca(rows, **terms.of_problem), budget=budget, share=0.5)
    except dpgep.errors.PrivacyBudgetError as error:
        refused = error
    return solution, released, refused, budget.remaining_mu, str(budget), records(file) if lasting else None


def table_of_ways() -> str:
    """The ways as docs/audits.md lists them: groups that are alike in a row."""
    groups: dict[str, list[Way]] = {}
    for way in ways():
        groups.setdefault(way.group, []).append(way)
    rows: dict[tuple[str, ...], list[str]] = {}
    for group, members in groups.items():
        names = [way.name for way in members]
        bounds = dict.fromkeys(bound for way in members for bound in way.bounds)
        adjacencies = dict.fromkeys(adjacency for way in members for adjacency in way.adjacencies)
        rows.setdefault(tuple(map(", ".join, (names, bounds, adjacencies))), []).append(group)
    lines = [f"| {'; '.join(alike)} | {' | '.join(cells)} |" for cells, alike in rows.items()]
    return "\n".join(["| way in | of it | bound | neighbours |", "|---|---|---|---|", *lines]) + "\n"
