"""Three sites that trust nobody, and a coordinator: four processes, which exchange one line each way over pipes.

    python examples/masked_sites.py

The coordinator, this program without arguments, starts the sites. A site sends its public key; it receives those of all
sites, and sends its masked sums. Its rows never leave its process. ``--fails NAME``: that site ends before it answers.
Needs the extra ``sites``. In earnest, give every site an identity and the ``trusted_keys`` of the others
(docs/masked.md).
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys

import numpy as np

import dpgep
from dpgep import masked

SITES = ("north", "south", "west")
TERMS = masked.Terms(
    dpgep.models.PcaModel(6, center=True),
    bound=1.0,
    epsilon=1.0,
    delta=1e-6,
    sites=SITES,
    colluding=1,
    session="examples/masked_sites.py",
)


def rows_of(name: str) -> np.ndarray:
    """The people of one site: their first two columns vary together."""
    rng = np.random.default_rng(SITES.index(name))
    rows = 0.1 * rng.standard_normal((20000, 6))
    rows[:, :2] += 0.2 * rng.standard_normal((20000, 1))
    return rows


def run_site(name: str, *, fails: bool) -> None:
    """Send a key, receive all keys, send the masked sums."""
    site = masked.Site(TERMS, name)
    print(base64.b64encode(site.key).decode(), flush=True)
    keys = {each: base64.b64decode(key) for each, key in json.loads(sys.stdin.readline()).items()}
    if fails:
        raise SystemExit(1)
    moments = dpgep.Moments(TERMS.model, bound=TERMS.bound)
    moments.update(rows_of(name))
    print(base64.b64encode(site.mask(moments, keys)).decode(), flush=True)


def run_coordinator(fails: str | None) -> None:
    """Pass on the keys, add the messages, and print what everybody may see."""
    sites = {}
    for name in SITES:
        command = [sys.executable, __file__, "--site", name, *(["--fails", fails] if fails else [])]
        sites[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    keys = {name: site.stdout.readline().strip() for name, site in sites.items()}
    answers = {name: site.communicate(json.dumps(keys) + "\n")[0].strip() for name, site in sites.items()}
    messages = {name: base64.b64decode(answer) for name, answer in answers.items() if answer}
    try:
        released = masked.release(TERMS, {name: base64.b64decode(key) for name, key in keys.items()}, messages)
    except ValueError as error:
        raise SystemExit(f"nothing was opened: {error}") from None
    print(released.solve(n_components=1))
    print("first component:", np.round(released.solve(n_components=1).components[0], 2).tolist())


def main() -> None:
    """One site with ``--site``, else the coordinator."""
    parser = argparse.ArgumentParser(description="Three sites that trust nobody, and a coordinator.")
    parser.add_argument("--site", choices=SITES)
    parser.add_argument("--fails", choices=SITES)
    given = parser.parse_args()
    if given.site:
        run_site(given.site, fails=given.site == given.fails)
    else:
        run_coordinator(given.fails)


if __name__ == "__main__":
    main()
