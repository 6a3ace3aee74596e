"""How many threads the compiled kernels use. Results never depend on it."""

import os


def thread_count() -> int:
    """DPGEP_NUM_THREADS if set, else the processors this process may run on.

    Raises ValueError if the variable is not a positive whole number.
    """
    value = os.environ.get("DPGEP_NUM_THREADS")
    if value is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(f"DPGEP_NUM_THREADS must be a positive whole number, got {value!r}")
    return int(value)
