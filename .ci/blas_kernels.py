"""Print the kernels of each OpenBLAS here; exit 1 unless OPENBLAS_CORETYPE, where it is set, chose them."""

import os
import sys

import numpy
import scipy.linalg
from threadpoolctl import threadpool_info

# Newer releases report the oldest kernels by the name of the first processor that they run on.
NAMES = {"Prescott": {"Prescott", "Katmai"}}

wanted = os.environ.get("OPENBLAS_CORETYPE")
found = [library for library in threadpool_info() if library["internal_api"] == "openblas"]
for library in found:
    print(f"OpenBLAS {library['version']}: kernels for {library['architecture']}")
print(f"Python {sys.version.split()[0]}, NumPy {numpy.__version__}, SciPy {scipy.__version__}")
if wanted and not (found and all(library["architecture"] in NAMES.get(wanted, {wanted}) for library in found)):
    sys.exit(f"OPENBLAS_CORETYPE={wanted} was not taken")
