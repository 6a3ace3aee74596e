"""Missing data sets skip a benchmark with the reason; the measured figures stand at the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest
import support


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is measured in full has no limit of time."""
    if not support.QUICK:
        for item in items:
            item.add_marker(pytest.mark.timeout(0))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    try:
        return (yield)
    except FileNotFoundError as missing:
        if "DPGEP_DATA" in str(missing):
            pytest.skip(str(missing))
        raise


@pytest.fixture(scope="session")
def mnist() -> Callable[[], Any]:
    """The MNIST rows, loaded once, when first asked for (from inside the test, so that missing data skip it)."""
    kept: list[Any] = []

    def load() -> Any:
        if not kept:
            kept.append(support.mnist())
        return kept[0]

    return load


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if support.lines:
        terminalreporter.section("target / measured" + (" (quick mode)" if support.QUICK else ""))
        for line in support.lines:
            terminalreporter.write_line(line)
