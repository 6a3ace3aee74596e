from collections.abc import Callable, Sequence
from typing import Any, Literal, final, overload

import numpy as np
from numpy.typing import NDArray

__version__: str

_F64 = NDArray[np.float64]
_I16 = NDArray[np.int16]
_I32 = NDArray[np.int32]
_I64 = NDArray[np.int64]
_U8 = NDArray[np.uint8]
_U64 = NDArray[np.uint64]
_Floats = NDArray[np.float32] | _F64
_Indices = _I32 | _I64
_Map = tuple[_F64 | None, _F64 | None, float, bool]
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
    ) -> tuple[str, tuple[int, int], _I64, list[float], int, _I64, _I64, _I64, _I64, list[bytes]]: ...

@final
class NoiseStream:
    def __init__(self, key: bytes | None = None, nonce: int = 0, transcript: Transcript | None = None) -> None: ...
    @property
    def seeded(self) -> bool: ...
    def bytes(self, n: int) -> bytes: ...
    def normal(self, out: _F64) -> None: ...

def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes: ...
def mirror_upper(matrix: _F64) -> None: ...
def clip_rows(rows: _Floats, bound: float, out: _F64) -> bool: ...
def clip_factors(rows: _Floats, bound: float, out: _F64) -> bool: ...
def clip_factors_csr(data: _Floats, indptr: _Indices, bound: float, out: _F64) -> bool: ...
def truncate_top_k(v: NDArray[Any], k: int) -> _I64: ...
def truncate_rows_top_k(V: NDArray[Any], k: int) -> _I64: ...
def fixed_point_rows(rows: _U8 | _Floats, bound: float, bits: int, out: _F64, n_threads: int = 1) -> bool: ...
def products_on_grid(
    rows: _U8 | _Floats, bound: float, bits: int, vectors: _F64, offset: _F64, out: _F64, n_threads: int = 1
) -> bool: ...
def add_clipped_products(
    rows: _U8 | _Floats,
    bound: float,
    bits: int,
    vectors: _F64,
    offset: _F64,
    factors: Sequence[tuple[int, int, int, float]],
    total: _I64,
    n_threads: int = 1,
) -> bool: ...
def gather_rows(columns: list[NDArray[Any]], first: int, out: _Floats, n_threads: int = 1) -> None: ...
def fixed_point_columns(
    columns: list[NDArray[Any]], first: int, bound: float, bits: int, out: _F64, n_threads: int = 1
) -> bool: ...
def fixed_point_csr(
    data: _Floats, indptr: _Indices, bound: float, bits: int, out: _I32, n_threads: int = 1
) -> bool: ...

narrow_dimension: int

def add_dense_moments(
    people: NDArray[Any] | list[NDArray[Any]],
    first: int,
    n: int,
    groups: _I64 | None,
    n_groups: int,
    bound: float,
    bits: int,
    total: _I64,
    n_threads: int = 1,
    weights: NDArray[Any] | None = None,
    high: _I64 | None = None,
    map: _Map | None = None,
) -> bool: ...
def add_csr_moments(
    values: _I32,
    indices: _Indices,
    indptr: _Indices,
    n_features: int,
    groups: _I64 | None,
    mark: int,
    total: _I64,
    n_threads: int = 1,
    sums_in_cache: int = 1048576,
) -> None: ...
def csr_squares(
    data: _Floats, indices: _Indices, indptr: _Indices, factors: _F64, out: _F64, n_threads: int = 1
) -> None: ...
def csr_group_sums(
    data: _Floats,
    indices: _Indices,
    indptr: _Indices,
    factors: _F64,
    groups: _I64 | None,
    out: _F64,
    n_threads: int = 1,
) -> None: ...
def count_magnitudes(
    rows: _Floats,
    columns: _I64,
    missing: bool,
    first_octave: int,
    n_octaves: int,
    counts: _I64,
    n_threads: int = 1,
    weights: NDArray[Any] | None = None,
) -> bool: ...
def count_places(
    rows: _Floats,
    columns: _I64,
    missing: bool,
    middle: _F64,
    half: _F64,
    counts: _I64,
    n_threads: int = 1,
    weights: NDArray[Any] | None = None,
) -> bool: ...
def sum_places(
    rows: _Floats,
    missing: bool,
    middle: _F64,
    half: _F64,
    bits: int,
    counts: _I64,
    n_threads: int = 1,
    weights: NDArray[Any] | None = None,
) -> bool: ...
def count_norms(
    rows: _Floats,
    steps: _F64,
    zero: int,
    first: int,
    counts: _I64,
    n_threads: int = 1,
    weights: NDArray[Any] | None = None,
    map: _Map | None = None,
) -> bool: ...
def count_norms_csr(
    data: _Floats,
    indptr: _Indices,
    steps: _F64,
    zero: int,
    first: int,
    counts: _I64,
    n_threads: int = 1,
    weights: NDArray[Any] | None = None,
) -> bool: ...
def people_runs(
    histograms: _F64, starts: _I64, widths: _I64, deviation: float, least: float, noise: float, most: float
) -> _F64: ...
def hash_rows(rows: _Floats, factors: _U64, groups: _I64 | None, keys: _U64, n_threads: int = 1) -> None: ...
def text_words(values: NDArray[Any], key: int, other_key: int, words: _U64) -> bool: ...
def utf8_words(ends: _I64, bytes: NDArray[np.uint8], key: int, other_key: int, words: _U64) -> None: ...

@final
class Numbering:
    def __init__(self, seed: int) -> None: ...
    @property
    def size(self) -> int: ...
    def number(self, words: _U64, numbers: _I64, is_open: bool) -> None: ...

@final
class Shares:
    def __init__(self, most_alike: int = 1, bits: int = 12, weighted: bool = False) -> None: ...
    def count(self, persons: _I64, keys: _U64, units: _I64 | None = None) -> None: ...
    def end_pass(self) -> bool: ...
    def share(
        self, persons: _I64, keys: _U64, units: _I64 | None, are_open: NDArray[np.uint8], shares: _I16 | _I64
    ) -> None: ...

def map_rows(
    rows: _Floats,
    location: _F64 | None,
    scale: _F64 | None,
    largest: float,
    missing: bool,
    out: _F64,
    n_threads: int = 1,
) -> bool: ...
def mix_rows(rows: _F64, linear: _F64, bits: int, n_threads: int = 1) -> None: ...
def fold_triangle(block: _F64, total: _I64, n_threads: int = 1) -> None: ...
def carry_triangle(total: _I64, high: _I64) -> None: ...
@overload
def exact_normal(out: _I64, scale: int, stream: NoiseStream, n_threads: int = 1) -> None: ...
@overload
def exact_normal(out: _I64, scales: _I64, stream: NoiseStream, n_threads: int = 1) -> None: ...
def add_exact_noise(
    array: _I64, scale: int, stream: NoiseStream, n_threads: int = 1, high: _I64 | None = None, low_bits: int = 0
) -> None: ...
def add_exact_symmetric_noise(
    matrix: _I64,
    diagonal_scale: int,
    off_diagonal_scale: int,
    stream: NoiseStream,
    n_threads: int = 1,
    high: _I64 | None = None,
    low_bits: int = 0,
) -> None: ...
def exact_normal_scripted(digits: _U64, scale: int, n: int) -> tuple[_I64, int]: ...

@final
class SymmetricMatrices:
    def __init__(self, a: _Floats, b: _Floats | None = None, n_threads: int = 1) -> None: ...
    @property
    def n_features(self) -> int: ...
    def times(self, V: _F64) -> tuple[_F64, _F64 | None]: ...

@final
class DenseRows:
    def __init__(self, views: Sequence[_Floats], factors: _F64, scale: float, n_threads: int = 1) -> None: ...
    @property
    def n_features(self) -> int: ...
    def times(self, V: _F64) -> _F64: ...

@final
class CsrRows:
    def __init__(
        self,
        data: _Floats,
        indices: _Indices,
        indptr: _Indices,
        n_features: int,
        factors: _F64,
        scale: float,
        n_threads: int = 1,
    ) -> None: ...
    @property
    def n_features(self) -> int: ...
    def times(self, V: _F64) -> _F64: ...

@final
class CallbackProducts:
    def __init__(self, callable: Callable[[_F64], _F64], n_features: int) -> None: ...
    @property
    def n_features(self) -> int: ...
    def times(self, V: _F64) -> _F64: ...

@final
class PencilPart:
    def __init__(
        self, weights: _F64, share: float = 0.0, blocks: Literal["whole", "between", "within"] = "whole"
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
        factors: _F64,
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
    def times(self, V: _F64) -> tuple[_F64, _F64]: ...

def rayleigh_flow(
    oracle: PairOracle,
    V0: _F64,
    n_iterations: int,
    step_size: float,
    *,
    shift: float = 0.0,
    ridge: float = 0.0,
    sparsity: int = 0,
    separate_supports: bool = False,
    tolerance: float = 0.0,
) -> tuple[_F64, _F64, int, bool]: ...
def crc32(data: Any, value: int = 0) -> int: ...
def begin_night(values: _I64, exact: _I64, before: _I64, steps: _I64, n_matrices: int, d: int) -> None: ...
def end_night(
    values: _I64, exact: _I64, unit: float, noise: _I64, published: _F64, n_matrices: int, d: int
) -> None: ...
def keyed_sums(bytes: _U8, k: _U64, l: _U64) -> tuple[int, int]: ...
def keyed_column_sums(
    columns: list[NDArray[np.uint8]], begun: int, k: _U64, l: _U64, sums: _U64, n_threads: int
) -> None: ...
def poisson_sample(n: int, rate: float, stream: NoiseStream) -> _I64: ...

@final
class SampledProducts:
    @staticmethod
    def of_dense(
        rows: _Floats,
        factors: _F64,
        n_people: float,
        rate: float,
        deviation_full: float,
        n_full: int,
        deviation_sampled: float,
        n_sampled: int,
        noisy: bool,
        stream: NoiseStream,
        n_threads: int = 1,
        starts: _I64 | None = None,
        order: _I64 | None = None,
    ) -> SampledProducts: ...
    @staticmethod
    def of_csr(
        data: _Floats,
        indices: _Indices,
        indptr: _Indices,
        n_features: int,
        factors: _F64,
        n_people: float,
        rate: float,
        deviation_full: float,
        n_full: int,
        deviation_sampled: float,
        n_sampled: int,
        noisy: bool,
        stream: NoiseStream,
        n_threads: int = 1,
        starts: _I64 | None = None,
        order: _I64 | None = None,
    ) -> SampledProducts: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_rejected_steps(self) -> int: ...
    def full(self, V: _F64) -> _F64: ...
    def ascend(self, V: _F64, step_sizes: _F64) -> tuple[_F64, _F64]: ...
    def ascend_reduced(self, V: _F64, anchor: _F64, gradient: _F64, step_sizes: _F64) -> tuple[_F64, _F64]: ...

def build_info() -> dict[str, str]: ...
