"""Paths, folders and globs: which files they stand for, and what kind of source these are."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from dpgep.sources.arrays import Array, SideBySide
from dpgep.sources.categories import Categories
from dpgep.sources.csv_files import CsvFiles
from dpgep.sources.names import listed
from dpgep.sources.source import Source, packages_messages_withheld
from dpgep.sources.table_files import ArrowFiles, ParquetFiles

_SUFFIXES = {
    "parquet": (".parquet", ".pq"),
    "CSV": (".csv", ".tsv", ".txt"),
    "Arrow": (".arrow", ".feather", ".ipc"),
    "NPY": (".npy",),
    "NPZ": (".npz",),
}
_KINDS = {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")


def open_files(values: Sequence[str | Path], categories: Categories) -> Source | list[Any]:
    """The source that paths stand for: files, folders, or patterns with ``*``, ``?`` and ``[...]``.

    Several files of arrays come as a list of batches. What has no known suffix is Parquet.
    """
    paths = [path for value in values for path in _matching(os.fspath(value))]
    kinds = {_kind_of_place(path) for path in paths}
    if len(kinds) > 1:
        raise ValueError(f"files of several kinds, {' and '.join(sorted(kinds))}: read one kind at a time")
    (kind,) = kinds
    if kind == "parquet":
        return ParquetFiles(paths)
    files = [file for path in paths for file in (_files_of(path, kind) if os.path.isdir(path) else [path])]
    if kind == "CSV":
        return CsvFiles(files, [name for name, declared in categories.items() if _is_text(declared)])
    if kind == "Arrow":
        with packages_messages_withheld(listed(files)):
            return ArrowFiles(files)
    load: Callable[[str], Any] = _mapped if kind == "NPY" else _arrays
    if len(files) > 1:
        return [load(file) for file in files]
    values_of_file = load(files[0])
    return Array(values_of_file, "the matrix") if kind == "NPY" else SideBySide(values_of_file, "column")


def _matching(path: str) -> list[str]:
    """The path itself, or the sorted paths that a pattern matches."""
    if os.path.exists(path) or "://" in path:
        return [path]
    if not glob.has_magic(path):
        raise FileNotFoundError(f"there is no file or folder {path!r}")
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise FileNotFoundError(f"no files match {path!r}")
    return found


def _kind(path: str) -> str | None:
    name = PurePath(path.lower())
    return _KINDS.get(PurePath(name.stem).suffix if name.suffix in _COMPRESSED else name.suffix)


def _kind_of_place(path: str) -> str:
    """The kind of a file, or of the files in a folder; Parquet where no suffix says."""
    if not os.path.isdir(path):
        return _kind(path) or "parquet"
    found = {kind for file in _walk(path) if (kind := _kind(file)) is not None}
    if len(found) > 1 and "parquet" not in found:
        raise ValueError(f"{path} holds files of several kinds, {' and '.join(sorted(found))}: use a pattern, as *.csv")
    return "parquet" if not found or "parquet" in found else found.pop()


def _files_of(folder: str, kind: str) -> list[str]:
    return [file for file in _walk(folder) if _kind(file) == kind]


def _walk(folder: str) -> list[str]:
    """All files of a folder and those in it, in the order of their paths; hidden ones apart."""
    found = (
        str(path)
        for path in Path(folder).rglob("*")
        if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )
    return sorted(found)


def _mapped(path: str) -> Any:
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _arrays(path: str) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _is_text(declared: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in declared)
