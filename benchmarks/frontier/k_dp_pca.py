"""k-DP-PCA (Düngler and Sanyal 2025): DP-PCA of what is left of rows, for each component on people of its own.

K passes over disjoint parts of the people, each of rows without their components along those found before. A pass
starts in what is left and returns to it after each noisy mean.

Sound here: a part is asked as in `dp_pca.py`, at mu, and nobody is in two parts.

Printed (arXiv:2508.10879; its abstract, first page and the sizes of an experiment could be read, which regimes.py has;
the rest is from memory, not verified; no code of the authors was found): that "ModifiedDP-PCA" differs from
DP-PCA in its gradients P x (x^T P w) and in a projection of w, with noise as in DP-PCA that adapts to the batch. What
else differs in it could not be checked; with one component this is `dp_pca.py`. Its constants are used here.
"""

from __future__ import annotations

import numpy as np
from dp_pca import direction
from mechanism import Analyst, Matrix


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    found = np.zeros((0, analyst.shape[1]))
    for part in np.array_split(analyst.rng.permutation(analyst.shape[0]), k):
        found = np.vstack([found, direction(analyst, part, found, mu)])
    return found
