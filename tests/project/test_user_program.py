"""A user's program over the public API runs; that its types are right is checked by mypy, among the linters."""

import math

import pytest
import user_program


def test_a_users_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    found = user_program.main()
    assert all(map(math.isfinite, found.values()))
    assert found["correlation of scores"] > 0.8
    assert found["wards found"] > 0.7
    assert found["variance by days"] == pytest.approx(3.1, rel=0.2)
    printed = capsys.readouterr().out
    assert "refused: the budget cannot pay" in printed
    assert "paid for moment matrix" in printed
