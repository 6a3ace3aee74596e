"""Masked sums of k sites against plain merging, from rows to release: all sites' work and the coordinator's in a row.

Plain: `Moments` of each site as bytes, merged by a trusted curator, one release. Without noise both have the same bits.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import support

import dpgep
from dpgep import masked

TARGET = 1.5
N_FEATURES, N_PER_SITE, ROUNDS = (50, 500, 1) if support.QUICK else (500, 10_000, 5)
GUARANTEE = {"epsilon": 1.0, "delta": 1e-6}
MODEL = dpgep.models.PcaModel(N_FEATURES, center=True)


def moments_of(rows: support.Matrix) -> dpgep.Moments:
    moments = dpgep.Moments(MODEL, bound=1.0)
    moments.update(rows, n_threads=1)
    return moments


def merged(parts: list[dpgep.Moments], **guarantee: Any) -> dpgep.Release:
    whole, *others = [dpgep.load(support.bytes_of(part)) for part in parts]
    for other in others:
        whole.merge(other)
    return dpgep.release(whole, **guarantee)


def masked_sum(parts: list[dpgep.Moments], **guarantee: Any) -> dpgep.Release:
    names = tuple(f"site {i}" for i in range(len(parts)))
    terms = masked.Terms(MODEL, bound=1.0, sites=names, colluding=0, session="benchmark", **guarantee)
    sites = {name: masked.Site(terms, name) for name in names}
    keys = {name: site.key for name, site in sites.items()}
    messages = {name: sites[name].mask(part, keys) for name, part in zip(names, parts, strict=True)}
    return masked.release(terms, keys, messages)


def seconds(call: Any, parts: list[dpgep.Moments]) -> float:
    start = time.perf_counter()
    call(parts, **GUARANTEE)
    return time.perf_counter() - start


@pytest.mark.parametrize("k", [3, 10])
def test_masked_against_merged(benchmark: Any, k: int) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((N_PER_SITE, N_FEATURES)) / 30 for _ in range(k)]
    parts = [moments_of(each) for each in rows]
    ours, theirs = (call(parts, epsilon=math.inf) for call in (masked_sum, merged))
    np.testing.assert_array_equal(ours.second_moment, theirs.second_moment)
    np.testing.assert_array_equal(ours._noisy.sums, theirs._noisy.sums)

    compared = support.alternate(
        benchmark,
        lambda: masked_sum([moments_of(each) for each in rows], **GUARANTEE),
        lambda: merged([moments_of(each) for each in rows], **GUARANTEE),
        ROUNDS,
    )
    without_rows = [min(seconds(call, parts) for _ in range(ROUNDS)) for call in (masked_sum, merged)]
    support.say(
        f"{k} sites of {N_PER_SITE} x {N_FEATURES}: masked {compared.ours:.3g} s, merged {compared.theirs:.3g} s; "
        f"after the rows are summed {without_rows[0]:.3g} s and {without_rows[1]:.3g} s; a message has "
        f"{16 * (N_FEATURES * (N_FEATURES + 3) // 2 + 1) / 1e6:.2g} MB"
    )
    support.judge(f"masked sum of {k} sites, time against plain merging", compared.ratio, TARGET)
