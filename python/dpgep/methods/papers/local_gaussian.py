"""`local-gaussian`: what a server would learn if everybody sent a local report, simulated by one draw of their sum."""

from __future__ import annotations

from dataclasses import dataclass

from dpgep.methods.base import MethodResult
from dpgep.methods.options import PairOptions
from dpgep.methods.release import solve_released
from dpgep.privacy.curator import Curator, PublicSide


@dataclass(frozen=True, kw_only=True)
class LocalGaussianOptions(PairOptions):
    """Options of "local-gaussian": how the server solves what it has."""

    def check(self, public: PublicSide, k: int) -> None:
        """Raise where clients could not serve the problem: a report holds one row, and their number is public."""
        model, facts = public.model, public.facts
        if not model.is_second_moment:
            raise ValueError(
                'method "local-gaussian" solves uncentred PCA, dpgep.pca(X, center=False), since reports '
                f"contain only x x^T; this is {model.name}{' with a mean' if model.name == 'pca' else ''}"
            )
        if facts.adjacency != "replace-one":
            raise ValueError(
                'method "local-gaussian" needs adjacency="replace-one": the server sees how many people report'
            )
        if facts.bound is None:
            raise ValueError('clients clip their own rows: give a public bound instead of bound="auto"')
        super().check(public, k)


def local_gaussian(curator: Curator, n_components: int, options: LocalGaussianOptions) -> MethodResult:
    """K leading eigenvectors of the mean of n local reports x x^T + Z.

    n independent GOE(s) matrices sum to one GOE(s sqrt(n)): the mean of the reports has the law of the second moment
    plus GOE(s/sqrt(n)), s = sqrt(2) R^2/mu. So a choice between the local and the central model needs no clients. The
    ledger is charged mu, what each person would spend.

    Source: Wang and Xu (2020), Algorithm 1; docs/local.md.
    """
    return solve_released(curator.model, curator.release_local(), n_components, options)
