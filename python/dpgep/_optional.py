"""Optional dependencies: imported where they are used, with an error that names the extra to install."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

# seconds; what is over by then shows no bar unless one is asked for
_DELAY = 1.0


class MissingExtraError(ImportError):
    """A feature needs a package that only an extra of dpgep installs."""


def import_extra(module: str, extra: str) -> Any:
    """The module, or a MissingExtraError that says how to install it; errors inside an installed package pass."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        how = f"run pip install 'dpgep[{extra}]' (from a clone of the repository: pip install '.[{extra}]')"
        raise MissingExtraError(f"{package} is not installed: {how}") from None


def data_frame(values: Any, index: Any, columns: Any = None, *, name: Any = None) -> Any:
    """A pandas DataFrame; ``name``: of its index, or a list of one for each level."""
    return import_extra("pandas", "pandas").DataFrame(values, index, columns).rename_axis(name)


def progress_bar(wanted: bool | None, what: str, total: int | None, unit: str) -> AbstractContextManager[Any]:
    """A tqdm bar on stderr, in a notebook below its cell, or None in its place. ``wanted``: always, never, or (None)
    after a second in a terminal or a notebook, where tqdm is installed.
    """
    if wanted is False or (wanted is None and not (sys.stderr and sys.stderr.isatty()) and not _in_notebook()):
        return nullcontext()
    try:
        # old versions of tqdm fail in a notebook that has no widgets
        widgets = importlib.util.find_spec("ipywidgets") is not None
        tqdm = import_extra("tqdm.auto" if widgets else "tqdm", "progress").tqdm
    except MissingExtraError:
        if wanted:
            raise
        return nullcontext()
    delay = 0.0 if wanted else _DELAY
    how = {"unit": f" {unit}", "unit_scale": True, "delay": delay, "file": sys.stderr}
    return tqdm(desc=what, total=total, **how)  # type: ignore[no-any-return]


def _in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, whose stderr is no terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", ())
