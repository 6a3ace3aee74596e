"""`problem_of`: any model of rows, from the data that its inputs name; the builders are not asked."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from conftest import solve_seeded
from model_rows import MODELS, arguments, dataset
from pages import DOCS, blocks
from stored import bytes_of

import dpgep
from dpgep.methods.auto import may_favour_clipping
from dpgep.models import CcaModel, GepModel, PcaModel, TableModel, ViewsModel
from dpgep.models.model import (
    BETWEEN,
    MEANS,
    TOTAL,
    WITHIN,
    WITHIN_GROUPS,
    Matrix,
    MatrixPencil,
    Model,
    Scatter,
    Traits,
)
from dpgep.models.moments import total_mean
from dpgep.models.row_model import Classes, MomentsPencil, RowModel
from dpgep.problems.problem import Problem, problem_of
from dpgep.serialization import decoded, encoded, stored_as

BUILDERS: dict[str, Any] = {"pca": dpgep.pca, "cca": dpgep.cca, "pls": dpgep.pls}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("bound", [1.0, "auto"])
def test_it_builds_what_the_builder_of_the_model_does(name: str, bound: Any) -> None:
    data = arguments(name, dataset(np.random.default_rng(0), 4000))
    options: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6, "n_components": 1}
    found = solve_seeded(problem_of(MODELS[name], *data, bound=bound), **options)
    expected = solve_seeded(BUILDERS[name](*data, bound=bound), **options)
    np.testing.assert_array_equal(found.components, expected.components)


@pytest.mark.parametrize(
    "build", [*BUILDERS.values(), dpgep.multiset_cca, dpgep.fda, dpgep.sir, dpgep.contrastive_pca, problem_of]
)
def test_tools_find_the_types_of_all_parameters(build: Any) -> None:
    assert {*get_type_hints(build)} == {*signature(build).parameters, "return"}


def test_names_come_from_the_columns_in_memory_and_in_files(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((50, 3)), columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "people.csv", index=False)
    source = dpgep.scan(tmp_path / "people.csv")
    for views in ((frame[["a"]], frame[["b", "c"]]), (source[["a"]], source[["b", "c"]])):
        assert problem_of(CcaModel((1, 2), True), *views, bound=1.0).model.feature_names == ("a", "b", "c")
    named = PcaModel(3, True, feature_names=("x", "y", "z"))
    with pytest.raises(ValueError, match="'x'"):
        problem_of(named, frame)


def test_matrices_have_the_second_moment_once_or_not_at_all() -> None:
    with pytest.raises(ValueError, match="must add up to 1 or 0, got 1 and 1"):
        Scatter(total=1.0, within=1.0)
    assert Scatter(within=1.0).moment
    assert not Scatter(total=1.0, within=-1.0).moment


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (TOTAL, WITHIN_GROUPS),
        (WITHIN_GROUPS, TOTAL),
        (Scatter(total=0.5, within=0.5), None),
        (WITHIN, None),
        (TOTAL, WITHIN),
        (BETWEEN, TOTAL),
        (MEANS, MEANS),
        (Scatter(within=1.0, blocks="between"), Scatter(within=1.0, blocks="within")),
    ],
)
def test_pairs_that_simulations_do_not_know_are_refused(a: Scatter, b: Scatter | None) -> None:
    """Their solutions would be right, but intervals and lost components wrong: T against W had 0 to 0.2 about 4.4."""
    with pytest.raises(ValueError, match="Where a holds b, take b from it") as caught:
        Traits(a, b)
    assert len(str(caught.value)) <= 200


class SitesApart(CcaModel):
    grouping = Classes(("north", "south"))


@dataclass(frozen=True)
class Nameless(RowModel):
    n_features: int
    traits = Traits(TOTAL)


def test_a_model_without_a_name_is_refused_when_it_is_made() -> None:
    with pytest.raises(TypeError, match='Nameless has no name: its class needs one, as in name = "within-pca"'):
        Nameless(3)  # type: ignore[abstract]


def test_groups_of_views_are_refused() -> None:
    with pytest.raises(ValueError, match="a model of several views has no groups"):
        SitesApart((1, 2), True)


class Shrunk(dpgep.models.FdaModel):
    name = "shrunk"
    traits = Traits(MEANS, Scatter(total=0.5, within=0.5))


def test_intervals_of_a_mixture_of_scatters_hold_the_truth() -> None:
    """B halfway between T and W: eigenvalues l / (1 + l / 2), with l those of FDA, from the population of 20000."""
    rng = np.random.default_rng(0)
    labels = rng.choice(3, 20_000)
    x = rng.standard_normal((20_000, 4))
    x[:, 0] += 2.0 * (labels == 0)
    x[:, 1] += 2.0 * (labels == 1)
    x /= 4
    fda = dpgep.solve(dpgep.fda(x, labels, classes=(0, 1, 2), bound=2.0), epsilon=np.inf, n_components=2).eigenvalues
    problem = problem_of(Shrunk(4, (0, 1, 2)), x, labels, bound=2.0)
    found = solve_seeded(problem, epsilon=8.0, delta=1e-6, n_components=2).intervals(0.999).eigenvalues
    truth = fda / (1 + fda / 2)
    assert (found[:, 0] < truth).all()
    assert (truth < found[:, 1]).all()


@pytest.mark.parametrize("model", [*MODELS.values(), TableModel(5), GepModel(5)], ids=lambda model: model.name)
def test_a_model_has_few_members(model: Model) -> None:
    """What its author and whoever uses it have to know; what follows from a release is in `NoisyPencil`."""
    assert len([name for name in dir(model) if not name.startswith("_")]) <= 12


def test_what_does_not_fit_the_model_is_refused() -> None:
    x: Any = np.ones((4, 3))
    model: Any = "pca"
    with pytest.raises(TypeError, match=r"model must be a model of rows, .* got str"):
        problem_of(model, x)
    with pytest.raises(ValueError, match="X must have 2 columns, it has 3"):
        problem_of(PcaModel(2, True), x)
    with pytest.raises(TypeError, match="cca needs X and Y for every person"):
        problem_of(CcaModel((1, 2), True), x)


def test_a_file_of_a_class_that_nobody_imported_says_what_to_do() -> None:
    solution = solve_seeded(dpgep.pca(np.eye(9, 3), bound=1.0), epsilon=9.0, delta=1e-4)
    document = bytes_of(solution).decode().replace('"kind": "pca"', '"kind": "within-pca"')
    with pytest.raises(ValueError, match=r"of kind 'within-pca'.*; of a class of your own, import the module first"):
        dpgep.load(document.encode())


@dataclass(frozen=True)
class Unnamed(PcaModel):
    groups: tuple = ()  # type: ignore[type-arg]


def test_files_of_a_class_without_a_name_are_not_written(tmp_path: Path) -> None:
    """Nobody could load them, and a release that was paid for would be lost."""
    problem = problem_of(Unnamed(3, True), np.eye(9, 3), bound=1.0)
    release = dpgep.release(problem, epsilon=9.0, delta=1e-4)
    with pytest.raises(TypeError, match="files have no name for Unnamed: put @"):
        release.save(tmp_path / "release.dpgep")
    assert not any(tmp_path.iterdir())


def test_a_name_belongs_to_one_class() -> None:
    with pytest.raises(ValueError, match="files call PcaModel 'pca': give Unnamed another name"):
        stored_as("pca")(Unnamed)


def test_a_field_that_is_a_tuple_of_anything_is_read_back() -> None:
    values = ("north", 2, True, 0.5)
    assert decoded(encoded(values), tuple, "values") == values


class WithoutGroups(PcaModel):
    traits = Traits(WITHIN_GROUPS)


def test_scatter_within_groups_needs_groups() -> None:
    with pytest.raises(ValueError, match="pca: the scatter within groups needs a grouping"):
        WithoutGroups(3, True)


class RankPencil(MomentsPencil):
    """Reduced-rank regression: B of the second view is the identity."""

    noise_alone, plausible_truth = MomentsPencil.noise_alone, MomentsPencil.plausible_truth  # of A, and of the moments

    def pair(self) -> MatrixPencil:
        pair, (_, second) = super().pair(), self.model.views
        assert pair.b is not None
        pair.b[..., second, second] = np.eye(second.stop - second.start)
        return pair

    def error_variances(self, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        (first, second), noise, mean = self.model.views, self.released.noise, total_mean(self.released)
        vectors, found = np.eye(len(right)) @ left, np.empty((right.shape[1], left.shape[1]))
        for i, j in np.ndindex(found.shape):
            form = np.outer(vectors[:, j], right[:, i])
            form[first, first] *= -eigenvalues[i]
            form[second, second] = 0.0
            form += form.T
            found[i, j] = noise.second**2 * (form**2).sum() / 4 + noise.sums**2 * ((form @ mean) ** 2).sum()
        return found


class ReducedRank(ViewsModel):
    name = "reduced-rank"
    traits = Traits(BETWEEN, WITHIN)

    def noisy(self, released: Any, scale: Any = None) -> RankPencil:
        return RankPencil(self, released, scale)


def ranked() -> tuple[Problem, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5000, 3)) * [1, 1, 0.5]
    y = x[:, :2] * [1.0, 0.7] + rng.standard_normal((5000, 2)) / 2
    return problem_of(ReducedRank((3, 2), True), x, y, bound=9.0), np.cov(np.hstack([x, y]).T, bias=True)


def test_a_pencil_of_its_own_is_solved_as_scipy_solves_it() -> None:
    problem, covariance = ranked()
    found = dpgep.solve(problem, epsilon=np.inf, n_components=2)
    a, b = covariance.copy(), np.eye(5)
    a[:3, :3], a[3:, 3:], b[:3, :3] = 0, 0, covariance[:3, :3]
    np.testing.assert_allclose(found.eigenvalues, scipy.linalg.eigh(a, b)[0][:2:-1], rtol=1e-6)
    intervals = solve_seeded(problem, epsilon=4.0, delta=1e-6, n_components=2).intervals(0.999).eigenvalues
    population = np.array([1.0, 0.7])
    assert ((intervals[:, 0] < population) & (population < intervals[:, 1])).all()


def test_a_pair_of_its_own_is_refused_without_its_errors_and_intervals() -> None:
    with pytest.raises(
        TypeError, match=r"^Alone has its own pair, but noise_alone and plausible_truth of another"
    ) as caught:

        class Alone(MomentsPencil):
            def pair(self) -> MatrixPencil:
                return super().pair()

            error_variances = MomentsPencil.error_variances

    assert "noise_alone = MomentsPencil.noise_alone (docs/your-own-model.md)" in str(caught.value)


class MirrorPencil(MomentsPencil):
    """Of rows and of their mirror images."""

    error_variances, noise_alone = MomentsPencil.error_variances, MomentsPencil.noise_alone
    plausible_truth = MomentsPencil.plausible_truth

    def pair(self) -> MatrixPencil:
        pair = super().pair()
        return replace(pair, a=(pair.a + pair.a[..., ::-1, ::-1]) / 2)


class Mirrored(PcaModel):
    name = "mirrored"

    def noisy(self, released: Any, scale: Any = None) -> MirrorPencil:
        return MirrorPencil(self, released, scale)


class LoudPencil(MomentsPencil):
    """Of ten times the covariance, with noise of its own."""

    plausible_truth = MomentsPencil.plausible_truth

    def pair(self) -> MatrixPencil:
        pair = super().pair()
        return replace(pair, a=10 * pair.a)

    def error_variances(self, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        return 100 * super().error_variances(left, right, eigenvalues)

    def noise_alone(self, *arguments: Any, **how: Any) -> Iterator[Matrix]:
        return (10 * noise for noise in super().noise_alone(*arguments, **how))


class Loud(PcaModel):
    name = "loud"

    def noisy(self, released: Any, scale: Any = None) -> LoudPencil:
        return LoudPencil(self, released, scale)


def test_components_of_a_pencil_of_its_own_are_lost_in_its_own_noise() -> None:
    """It is drawn: what is known of the noise of other pencils without draws is not asked."""
    people = np.random.default_rng(0).standard_normal((2000, 6)) / 4
    loud = solve_seeded(problem_of(Loud(6, True), people, bound=1.0), epsilon=1.0, delta=1e-6, n_components=2)
    plain = solve_seeded(dpgep.pca(people, bound=1.0), epsilon=1.0, delta=1e-6, n_components=2)
    np.testing.assert_allclose(loud.eigenvalues, 10 * plain.eigenvalues)
    assert loud.diagnostics.lost == plain.diagnostics.lost == (True, True)
    np.testing.assert_allclose(loud.diagnostics.noise_edge, 10 * plain.diagnostics.noise_edge, rtol=0.2)


BY_PRODUCTS: list[dict[str, Any]] = [
    {"storage": "operator"},
    {"screen": 2},
    *({"method": name} for name in ("rayleigh-flow", "dpsr", "clipped-power", "dp-spca", "dp-vrpca")),
    *({"method": name, "sparsity": 2} for name in ("truncated-rayleigh-flow", "dpsrs")),
]


@pytest.mark.parametrize("options", BY_PRODUCTS, ids=str)
def test_a_pencil_of_its_own_is_not_asked_for_products(options: dict[str, Any]) -> None:
    """They would be those of the traits: another problem, solved in silence."""
    mirrored = problem_of(Mirrored(4, False), np.eye(40, 4), bound=1.0)
    with pytest.raises(ValueError, match=r"mirrored makes them of a released matrix, by a pencil of its own"):
        dpgep.solve(mirrored, epsilon=4.0, delta=1e-6, n_components=1, **options)


def test_a_pencil_of_its_own_has_no_pilot_that_favours_products() -> None:
    public = {"k": 1, "n": 20_000, "mu": 1.0}
    assert may_favour_clipping(PcaModel(200, True), **public)
    assert not may_favour_clipping(Mirrored(200, True), **public)


def test_the_file_of_the_page_on_own_models_is_a_command(tmp_path: Path) -> None:
    """In a process of its own: it would be a command of all other tests."""
    page, parts = blocks(DOCS / "your-own-model.md"), ("class WithinPca(", "def within_pca(", "raise SystemExit")
    program = "\n".join(block.text for block in page if any(part in block.text for part in parts))
    (tmp_path / "within.py").write_text(program)
    people = pd.DataFrame(np.random.default_rng(0).standard_normal((2000, 3)), columns=["a", "b", "c"])
    people["site"] = np.resize(["north", "south", "west"], len(people))
    people.to_csv(tmp_path / "people.csv", index=False)
    (commands,) = (block.text for block in page if block.language == "sh")
    of_python = ([sys.executable, *shlex.split(line)[1:]] for line in commands.splitlines())
    fitted, report = (
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True) for words in of_python
    )
    assert fitted.stdout.startswith("Solution of within-pca by release: 3 components in 3 features")
    assert "with epsilon = 4 and delta = 1e-06" in report.stdout
