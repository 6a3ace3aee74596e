"""Optional dependencies: imported where they are used, with an error that names the extra to install."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtraError(ImportError):
    """A feature needs a package that only an extra of dpgep installs."""


def import_extra(module: str, extra: str) -> Any:
    """The module, or a MissingExtraError that says how to install it.

    Only the absence of the package itself is translated: an import error inside an installed package is passed on.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtraError(
            f"{package} is not installed: run pip install 'dpgep[{extra}]' "
            f"(from a clone of the repository: pip install '.[{extra}]')"
        ) from None
