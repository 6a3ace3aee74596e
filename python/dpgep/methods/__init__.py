"""Methods: algorithms that receive a curator and public numbers, never rows."""

from __future__ import annotations

from collections.abc import Callable

from dpgep.methods.release import MethodResult, release

METHODS: dict[str, Callable[..., MethodResult]] = {"release": release}
