"""The local model: everybody adds noise to their own record before it leaves them; a server sums what they send.

    client    GaussianRandomizer(dim, bound, epsilon, delta).randomize(x) -> Reports -> bytes
    server    Aggregator(dim, bound, epsilon, delta).add(bytes); .solve(n_components) -> Solution

Nobody is trusted with records, and the price is high: the noise of n people adds up, so that the error falls like
1/sqrt(n), not 1/n as under `dpgep.solve`. docs/local.md shows both sides.
"""

from dpgep.local.aggregator import Aggregator
from dpgep.local.protocol import GaussianRandomizer, LocalMechanism, ReportError, Reports

__all__ = ["Aggregator", "GaussianRandomizer", "LocalMechanism", "ReportError", "Reports"]
