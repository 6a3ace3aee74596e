"""`problem_of`: any model of rows, from the data that its inputs name; the builders are not asked."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import solve_seeded
from model_rows import MODELS, arguments, dataset
from stored import bytes_of

import dpgep
from dpgep.models import CcaModel, PcaModel, TableModel
from dpgep.models.gep import GepModel
from dpgep.models.model import Model, Scatter
from dpgep.problems.problem import problem_of

BUILDERS: dict[str, Any] = {"pca": dpgep.pca, "cca": dpgep.cca, "pls": dpgep.pls}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("bound", [1.0, "auto"])
def test_it_builds_what_the_builder_of_the_model_does(name: str, bound: Any) -> None:
    data = arguments(name, dataset(np.random.default_rng(0), 4000))
    options: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6, "n_components": 1}
    found = solve_seeded(problem_of(MODELS[name], *data, bound=bound), **options)
    expected = solve_seeded(BUILDERS[name](*data, bound=bound), **options)
    np.testing.assert_array_equal(found.components, expected.components)


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
