"""Multiset canonical correlations: A = covariances between any number of views, B = covariances within them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpgep.models.cca import CorrelationModel
from dpgep.serialization import stored_as


@stored_as("multiset-cca")
@dataclass(frozen=True)
class MultisetCcaModel(CorrelationModel):
    """max sum_{i != j} x_i^T S_ij x_j over sum_i x_i^T S_ii x_i = 1, with v = (x_1, ..., x_m) for m views."""

    sizes: tuple[int, ...]
    center: bool
    name = "multiset-cca"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if len(self.sizes) < 2:
            raise ValueError(f"multiset-cca compares two views or more, got {len(self.sizes)}")
        super().__post_init__()
        object.__setattr__(self, "traits", replace(self.traits, largest_eigenvalue=len(self.sizes) - 1.0))

    @property
    def view_sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.sizes

    @property
    def max_components(self) -> int:
        return self.n_features - max(self.sizes)

    @property
    def max_components_reason(self) -> str:
        return (
            f"multiset CCA of {', '.join(map(str, self.sizes))} features has {self.max_components} components, as "
            "many as there are features outside the largest view"
        )

    def resized(self, sizes: Sequence[int]) -> MultisetCcaModel:
        return replace(self, sizes=tuple(sizes), feature_names=None, indicators=())
