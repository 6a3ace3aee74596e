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
    """Add sign rows^T rows to total, for j >= i alone. Total has contiguous rows; rows have them, or columns."""
    n, k, order = _int(rows.shape[1]), _int(rows.shape[0]), _Order(rows)
    # row-major is column-major transposed: lower for upper
    _dsyrk(
        b"L", order.as_it_lies, _at(n), _at(k), _at(_double(sign)), rows.ctypes.data, order.stride,
        _at(_double(1.0)), total.ctypes.data, _row_stride(total),
    )  # fmt: skip


def add_product(left: Matrix, right: Matrix, total: Matrix, sign: float) -> None:
    """Add sign left^T right to total, which has contiguous rows; each of the others has them, or columns."""
    m, n, k = _int(right.shape[1]), _int(left.shape[1]), _int(left.shape[0])
    of_left, of_right = _Order(left), _Order(right)
    _dgemm(
        of_right.as_it_lies, of_left.transposed, _at(m), _at(n), _at(k), _at(_double(sign)), right.ctypes.data,
        of_right.stride, left.ctypes.data, of_left.stride, _at(_double(1.0)), total.ctypes.data, _row_stride(total),
    )  # fmt: skip


class _Order:
    """How BLAS, which is column-major, is to read a matrix of rows: transposed already, or not."""

    def __init__(self, matrix: Matrix) -> None:
        by_rows = matrix.strides[1] == 8 and matrix.strides[0] >= 8 * matrix.shape[1]
        stride, contiguous = matrix.strides if by_rows else matrix.strides[::-1]
        assert contiguous == 8
        self.as_it_lies, self.transposed = (b"N", b"T") if by_rows else (b"T", b"N")
        self.stride = _at(_int(stride // 8))


def _row_stride(total: Matrix) -> Any:
    order = _Order(total)
    assert order.as_it_lies == b"N"
    return order.stride


_int, _double, _at = ctypes.c_int, ctypes.c_double, ctypes.byref
