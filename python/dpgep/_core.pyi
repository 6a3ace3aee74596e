from collections.abc import Callable, Sequence
from typing import Any, Literal, final, overload

import numpy as np
from numpy.typing import NDArray

__version__: str

_FloatingArray = NDArray[np.float32] | NDArray[np.float64]
_IndexArray = NDArray[np.int32] | NDArray[np.int64]
_NoiseShape = Literal["goe", "iid"]
_NoiseMode = Literal["none", "fresh", "lazy"]

@final
class Transcript:
    def __init__(self, script: Transcript | None = None) -> None: ...
    def close(self) -> None: ...
    @property
    def divergence(self) -> str: ...
    @property
    def n_queries(self) -> int: ...
    def query(
        self, i: int
    ) -> tuple[
        str,
        tuple[int, int],
        NDArray[np.int64],
        list[float],
        int,
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        NDArray[np.int64],
        list[bytes],
    ]: ...

@final
class NoiseStream:
    def __init__(self, key: bytes | None = None, nonce: int = 0, transcript: Transcript | None = None) -> None: ...
    @property
    def seeded(self) -> bool: ...
    def bytes(self, n: int) -> bytes: ...
    def normal(self, out: NDArray[np.float64]) -> None: ...

def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes: ...
def mirror_upper(matrix: NDArray[np.float64]) -> None: ...
def clip_rows(rows: NDArray[np.float32] | NDArray[np.float64], bound: float, out: NDArray[np.float64]) -> bool: ...
def clip_factors(rows: _FloatingArray, bound: float, out: NDArray[np.float64]) -> bool: ...
def clip_factors_csr(data: _FloatingArray, indptr: _IndexArray, bound: float, out: NDArray[np.float64]) -> bool: ...
def truncate_top_k(v: NDArray[Any], k: int) -> NDArray[np.int64]: ...
def truncate_rows_top_k(V: NDArray[Any], k: int) -> NDArray[np.int64]: ...
def fixed_point_rows(
    rows: NDArray[np.uint8] | NDArray[np.float32] | NDArray[np.float64],
    bound: float,
    bits: int,
    out: NDArray[np.float64],
    n_threads: int = 1,
) -> bool: ...
def gather_rows(
    columns: list[NDArray[Any]], first: int, out: NDArray[np.float32] | NDArray[np.float64], n_threads: int = 1
) -> None: ...
def fixed_point_columns(
    columns: list[NDArray[Any]], first: int, bound: float, bits: int, out: NDArray[np.float64], n_threads: int = 1
) -> bool: ...
def fixed_point_csr(
    data: _FloatingArray, indptr: _IndexArray, bound: float, bits: int, out: NDArray[np.int32], n_threads: int = 1
) -> bool: ...

narrow_dimension: int

def add_dense_moments(
    people: NDArray[Any] | list[NDArray[Any]],
    first: int,
    n: int,
    groups: NDArray[np.int64] | None,
    n_groups: int,
    bound: float,
    bits: int,
    total: NDArray[np.int64],
    n_threads: int = 1,
) -> bool: ...
def add_csr_moments(
    values: NDArray[np.int32],
    indices: _IndexArray,
    indptr: _IndexArray,
    n_features: int,
    groups: NDArray[np.int64] | None,
    mark: int,
    total: NDArray[np.int64],
    n_threads: int = 1,
) -> None: ...
def csr_squares(
    data: _FloatingArray,
    indices: _IndexArray,
    indptr: _IndexArray,
    factors: NDArray[np.float64],
    out: NDArray[np.float64],
    n_threads: int = 1,
) -> None: ...
def csr_group_sums(
    data: _FloatingArray,
    indices: _IndexArray,
    indptr: _IndexArray,
    factors: NDArray[np.float64],
    groups: NDArray[np.int64] | None,
    out: NDArray[np.float64],
    n_threads: int = 1,
) -> None: ...
def fold_triangle(block: NDArray[np.float64], total: NDArray[np.int64], n_threads: int = 1) -> None: ...
def carry_triangle(total: NDArray[np.int64], high: NDArray[np.int64]) -> None: ...
@overload
def exact_normal(out: NDArray[np.int64], scale: int, stream: NoiseStream, n_threads: int = 1) -> None: ...
@overload
def exact_normal(
    out: NDArray[np.int64], scales: NDArray[np.int64], stream: NoiseStream, n_threads: int = 1
) -> None: ...
def add_exact_noise(
    array: NDArray[np.int64],
    scale: int,
    stream: NoiseStream,
    n_threads: int = 1,
    high: NDArray[np.int64] | None = None,
    low_bits: int = 0,
) -> None: ...
def add_exact_symmetric_noise(
    matrix: NDArray[np.int64],
    diagonal_scale: int,
    off_diagonal_scale: int,
    stream: NoiseStream,
    n_threads: int = 1,
    high: NDArray[np.int64] | None = None,
    low_bits: int = 0,
) -> None: ...
def exact_normal_scripted(digits: NDArray[np.uint64], scale: int, n: int) -> tuple[NDArray[np.int64], int]: ...

@final
class SymmetricMatrices:
    def __init__(self, a: _FloatingArray, b: _FloatingArray | None = None, n_threads: int = 1) -> None: ...
    @property
    def n_features(self) -> int: ...
    def times(self, V: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]: ...

@final
class DenseRows:
    def __init__(
        self, views: Sequence[_FloatingArray], factors: NDArray[np.float64], scale: float, n_threads: int = 1
    ) -> None: ...
    @property
    def n_features(self) -> int: ...
    def times(self, V: NDArray[np.float64]) -> NDArray[np.float64]: ...

@final
class CsrRows:
    def __init__(
        self,
        data: _FloatingArray,
        indices: _IndexArray,
        indptr: _IndexArray,
        n_features: int,
        factors: NDArray[np.float64],
        scale: float,
        n_threads: int = 1,
    ) -> None: ...
    @property
    def n_features(self) -> int: ...
    def times(self, V: NDArray[np.float64]) -> NDArray[np.float64]: ...

@final
class CallbackProducts:
    def __init__(self, callable: Callable[[NDArray[np.float64]], NDArray[np.float64]], n_features: int) -> None: ...
    @property
    def n_features(self) -> int: ...
    def times(self, V: NDArray[np.float64]) -> NDArray[np.float64]: ...

@final
class PencilPart:
    def __init__(
        self, weights: NDArray[np.float64], share: float = 0.0, blocks: Literal["whole", "between", "within"] = "whole"
    ) -> None: ...

@final
class Noise:
    def __init__(
        self,
        mode: _NoiseMode,
        scales: Sequence[float] = (),
        shape: _NoiseShape = "goe",
        n_products: int = 0,
        stream: NoiseStream | None = None,
        max_directions: int | None = None,
        n_threads: int = 1,
    ) -> None: ...

@final
class PairOracle:
    @staticmethod
    def of_matrices(matrices: SymmetricMatrices, noise: Noise) -> PairOracle: ...
    @staticmethod
    def of_rows(
        rows: DenseRows | CsrRows | CallbackProducts,
        noise: Noise,
        factors: NDArray[np.float64],
        a: PencilPart,
        b: PencilPart | None = None,
        view_sizes: Sequence[int] = [],
    ) -> PairOracle: ...
    @property
    def n_features(self) -> int: ...
    @property
    def noise(self) -> _NoiseMode: ...
    @property
    def n_directions(self) -> int: ...
    @property
    def n_answered(self) -> int: ...
    @property
    def n_passes(self) -> int: ...
    def times(self, V: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

def rayleigh_flow(
    oracle: PairOracle,
    V0: NDArray[np.float64],
    n_iterations: int,
    step_size: float,
    *,
    shift: float = 0.0,
    ridge: float = 0.0,
    sparsity: int = 0,
    separate_supports: bool = False,
    tolerance: float = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int, bool]: ...
def keyed_sums(bytes: NDArray[np.uint8], k: NDArray[np.uint64], l: NDArray[np.uint64]) -> tuple[int, int]: ...
def poisson_sample(n: int, rate: float, stream: NoiseStream) -> NDArray[np.int64]: ...

@final
class SampledProducts:
    @staticmethod
    def of_dense(
        rows: NDArray[np.float32] | NDArray[np.float64],
        factors: NDArray[np.float64],
        n_people: float,
        rate: float,
        deviation_full: float,
        n_full: int,
        deviation_sampled: float,
        n_sampled: int,
        noisy: bool,
        stream: NoiseStream,
        n_threads: int = 1,
    ) -> SampledProducts: ...
    @staticmethod
    def of_csr(
        data: NDArray[np.float32] | NDArray[np.float64],
        indices: NDArray[np.int32] | NDArray[np.int64],
        indptr: NDArray[np.int32] | NDArray[np.int64],
        n_features: int,
        factors: NDArray[np.float64],
        n_people: float,
        rate: float,
        deviation_full: float,
        n_full: int,
        deviation_sampled: float,
        n_sampled: int,
        noisy: bool,
        stream: NoiseStream,
        n_threads: int = 1,
    ) -> SampledProducts: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_rejected_steps(self) -> int: ...
    def full(self, V: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def ascend(
        self, V: NDArray[np.float64], step_sizes: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    def ascend_reduced(
        self,
        V: NDArray[np.float64],
        anchor: NDArray[np.float64],
        gradient: NDArray[np.float64],
        step_sizes: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

def build_info() -> dict[str, str]: ...
