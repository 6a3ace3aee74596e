"""SciPy's BLAS on parts of matrices in place and without the GIL, which its Python wrappers copy and hold."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import scipy.linalg.cython_blas
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _routine(name: str) -> Any:
    """A routine as SciPy gives it to Cython: in a capsule named by its signature. All its arguments are pointers."""
    capsule = scipy.linalg.cython_blas.__pyx_capi__[name]
    signature = _capsule_name(capsule)
    if b" int *" not in signature:
        raise ImportError(f"SciPy's {name} takes other integers than this version of dpgep knows: {signature.decode()}")
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (signature.count(b",") + 1))
    return prototype(_capsule_pointer(capsule, signature))


_dsyrk, _dgemm = _routine("dsyrk"), _routine("dgemm")


def add_gram(rows: Matrix, total: Matrix, sign: float) -> None:
    """Add sign rows^T rows to total, for j >= i alone; contiguous rows in both."""
    # row-major is column-major transposed: lower for upper
    n, k = _int(rows.shape[1]), _int(rows.shape[0])
    _dsyrk(
        b"L", b"N", _at(n), _at(k), _at(_double(sign)), rows.ctypes.data, _at(_stride(rows)), _at(_double(1.0)),
        total.ctypes.data, _at(_stride(total)),
    )  # fmt: skip


def add_product(left: Matrix, right: Matrix, total: Matrix, sign: float) -> None:
    """Add sign left^T right to total; contiguous rows in all three."""
    m, n, k = _int(right.shape[1]), _int(left.shape[1]), _int(left.shape[0])
    _dgemm(
        b"N", b"T", _at(m), _at(n), _at(k), _at(_double(sign)), right.ctypes.data, _at(_stride(right)),
        left.ctypes.data, _at(_stride(left)), _at(_double(1.0)), total.ctypes.data, _at(_stride(total)),
    )  # fmt: skip


_int, _double, _at = ctypes.c_int, ctypes.c_double, ctypes.byref


def _stride(matrix: Matrix) -> ctypes.c_int:
    assert matrix.strides[1] == 8
    return _int(matrix.strides[0] // 8)
