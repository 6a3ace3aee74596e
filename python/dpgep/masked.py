"""One release of the people of several sites that trust nobody: their sums are masked, and add up to the noisy sum.

Every site adds its share of the noise to its exact sums, and masks that cancel in the sum over all sites. Whoever adds
the messages, the coordinator, sees the noisy sum over everybody and nothing else; its noise is that of one curator who
has all the rows. docs/masked.md has the protocol, the proof, and what is taken for granted: sites and coordinator are
honest but curious. Needs the extra ``sites``.

Examples
--------
>>> import numpy as np, dpgep
>>> from dpgep.masked import Site, Terms, release
>>> terms = Terms(dpgep.models.PcaModel(3, center=True), bound=1.0, epsilon=1.0, delta=1e-6, sites=("north", "south"),
...               colluding=0, session="2026-11")
>>> sites = {name: Site(terms, name) for name in terms.sites}
>>> keys = {name: site.key for name, site in sites.items()}  # the coordinator passes them on
>>> rng, messages = np.random.default_rng(0), {}
>>> for name, site in sites.items():
...     moments = dpgep.Moments(terms.model, bound=1.0)
...     moments.update(rng.standard_normal((5000, 3)) * [3, 1, 1] / 8)
...     messages[name] = site.mask(moments, keys)
>>> release(terms, keys, messages).solve(n_components=1).privacy.epsilon
1.0
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpgep._optional import import_extra
from dpgep._watched import noted
from dpgep.data.integer_moments import LOW_BITS, IntegerMoments
from dpgep.models.model import Adjacency, PublicFacts
from dpgep.models.moments import MomentLayout
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import RowModel, layout_of
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator, NoiseShare, normalized_moments, share_entry, summed_shares
from dpgep.privacy.ledger import LedgerEntry, Owner
from dpgep.privacy.noise import LARGEST_MU, IntegerNoise, share_noise
from dpgep.problems.mergeable_moments import Moments, problem_from
from dpgep.results.release import Release
from dpgep.run import Run, public_inputs, report_of, warn_of_delta, warn_of_epsilon
from dpgep.serialization import Format, encoded, opened, triangle_rows, upper_triangle_of

__all__ = ["Site", "Terms", "new_identity", "release"]

# (2, entries): an integer modulo 2^128, as two words, the lower one first
Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

_KEY, _SUM = Format("dpgep-masked-key"), Format("dpgep-masked-sum")
# Entries that are masked at a time: their masks stay in the cache.
_CHUNK = 1 << 14
_VALUE_BITS = 63 + LOW_BITS


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What all sites and the coordinator have agreed on: public, and the same everywhere, or nothing is opened.

    Parameters
    ----------
    model, bound, preprocessing, adjacency, public_n, bits, person, rows, largest_weight
        As in `dpgep.Moments`. Under "replace-one" the number of people of all sites together becomes public, that of
        each site does not; under "add-remove", and of weighted people, neither. Name the model's features, here and in
        the moments of each site, if the release is to have names. With ``person``, all rows of a person must be at one
        site: nobody can check that.
    sites : sequence of str
        Names of all sites, at least two.
    colluding : int
        At most this many sites share what they know with the coordinator or each other; the guarantee is for people
        of the others. 0: it holds against the coordinator, and everybody who sees the result, alone. With 1 it holds
        against every site as well, which knows its own share of the noise and can subtract it. The deviation of the
        noise of k sites is sqrt(k/(k - colluding)) times that of one curator.
    session : str
        A name for this sum, by which nobody takes one for another.
    epsilon, delta, rho, mu : float
        The guarantee, in one form, as in `dpgep.Budget`; mu is between 2^-20 and 32, or infinite: without noise.
    """

    model: RowModel = field(kw_only=False)
    bound: float | None = None
    preprocessing: Preprocessing | None = None
    sites: tuple[str, ...]
    colluding: int
    session: str
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    adjacency: Adjacency = "replace-one"
    public_n: int | None = None
    bits: int | None = None
    person: str | None = None
    rows: int | None = None
    largest_weight: float | None = None

    def __post_init__(self) -> None:
        given: Any = self.sites
        names = () if isinstance(given, str) else tuple(given)
        if len(names) < 2 or len(set(names)) < len(names) or not all(map(_is_name, names)):
            raise ValueError(f"sites must be two different names or more, got {self.sites!r}")
        if isinstance(self.colluding, (bool, float)) or self.colluding not in range(len(names)):
            raise ValueError(f"colluding must be a whole number below that of the sites, got {self.colluding!r}")
        if not _is_name(self.session):
            raise ValueError(f"session must be a name for this sum, got {self.session!r}")
        object.__setattr__(self, "sites", names)
        object.__setattr__(self, "bits", self.no_people.bits)
        for name in ("_fields", "share"):  # what they raise is to be raised here
            getattr(self, name)
        warn_of_epsilon(self.guarantee)

    @property
    def guarantee(self) -> Budget:
        """The guarantee in all its forms: a new budget for this sum alone."""
        return Budget(**self._named(_FORMS), adjacency=self.adjacency, person=self.person)

    @cached_property
    def no_people(self) -> Moments:
        """Sums of nobody, of this model, bound and grid."""
        names = ("bound", "preprocessing", "adjacency", "public_n", "bits", "person", "rows", "largest_weight")
        return Moments(self.model, **self._named(names))

    @cached_property
    def facts(self) -> PublicFacts:
        """Public facts: the adjacency, the bound, and the number of people where it is public beforehand."""
        inputs = self.person, self.rows, self.largest_weight
        return PublicFacts(self.adjacency, self.no_people.bound, self.public_n, *inputs)

    @cached_property
    def layout(self) -> MomentLayout:
        """What is released."""
        return layout_of(self.model, self.facts, self.preprocessing)

    @cached_property
    def share(self) -> IntegerNoise:
        """The scales of one site's share of the noise."""
        honest, sums = len(self.sites) - self.colluding, self.no_people
        how = self.layout, self.adjacency, sums.bits, honest, sums._weight_bits
        return share_noise(self.guarantee.mu, *how)

    def entry(self) -> LedgerEntry:
        """What the release costs each person."""
        return share_entry(self.guarantee.mu, self.share, self.facts, self.layout, len(self.sites), self.colluding)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        whole, forms = self._named(("public_n", "bits", "colluding")), self._named(_FORMS)
        return {
            **encoded(self),
            "bound": float(self.no_people.bound),
            **{name: None if value is None else int(value) for name, value in whole.items()},
            **{name: None if value is None else encoded(float(value)) for name, value in forms.items()},
        }

    def _named(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}


_FORMS = ("epsilon", "delta", "rho", "mu")


class Site:
    """One site's part in one masked sum: a key of its own, then one message. It answers once.

    Keep the object in the process that made it: it holds a secret, cannot be pickled or copied, and is of no use in a
    forked child. A message that was lost on its way is sent again, as the same bytes; two sums under the same masks
    would show their difference.

    Parameters
    ----------
    terms : Terms
        What all have agreed on.
    name : str
        That of this site.
    identity : bytes, optional
        The site's lasting secret key, from `new_identity`: signs ``key``, so that nobody can replace it.
    trusted_keys : mapping of str to bytes, optional
        The public keys of the other sites' identities, from them and not from the coordinator. Without them, a
        coordinator that lies about keys can read the sums of each site with only that site's share of the noise.

    Attributes
    ----------
    key : bytes, this site's public key and terms, for the coordinator to pass on to all sites.
    """

    def __init__(
        self, terms: Terms, name: str, *, identity: bytes | None = None, trusted_keys: Mapping[str, bytes] | None = None
    ) -> None:
        if name not in terms.sites:
            raise ValueError(f"{name!r} is none of the sites: {', '.join(terms.sites)}")
        if trusted_keys is not None and (unknown := {*terms.sites} - {name} - {*trusted_keys}):
            raise ValueError(f"trusted_keys lack {', '.join(sorted(unknown))}")
        self.terms, self.name = terms, name
        self._trusted = None if trusted_keys is None else _verifiers(trusted_keys)
        self._secret = _primitives("asymmetric.x25519").X25519PrivateKey.generate()
        self._public = self._secret.public_key().public_bytes_raw()
        self._owner, self._lock = Owner(), threading.Lock()
        header = {"site": name, "terms": terms._fields, "public_key": self._public.hex()}
        if identity is not None:
            signer = _primitives("asymmetric.ed25519").Ed25519PrivateKey.from_private_bytes(identity)
            header["signature"] = signer.sign(_signed(terms, name, self._public)).hex()
        self.key: bytes = _KEY.pack(header)

    def mask(self, moments: Moments, keys: Mapping[str, bytes], *, budget: Budget | None = None) -> bytes:
        """Sums of this site with its share of the noise, masked: the message to the coordinator.

        ``moments`` are exact sums over the people of this site, who are nobody else's, and stay as they are. ``keys``
        has the ``key`` of every site by name, as the coordinator has passed them on. The ``budget`` pays the mu of the
        terms, before anything leaves the site.

        Raises
        ------
        ValueError
            If a site is missing, or differs in a public fact, which the message names; if a key is damaged, was made by
            somebody else than trusted_keys say, or is not the one that this site made; if ``moments`` are of another
            model, bound, adjacency, grid or columns, or of fewer than two people under "replace-one". Nothing is spent
            then, and the site can still answer.
        PrivacyBudgetError
            If the budget does not suffice, or in a forked process.
        RuntimeError
            If this site has answered already, or was interrupted while it did: what it paid stays spent.
        """
        roster = _roster(self.terms, keys, self._trusted, but=self.name)
        if roster.get(self.name) != self._public:
            raise ValueError(f"the key that came back for {self.name} is not the one that this site made")
        self._require_terms(moments)
        if budget is not None and LARGEST_MU < budget.mu < math.inf:
            raise ValueError(f"a masked sum is proved for budgets of mu <= {LARGEST_MU:g}, got mu = {budget.mu:.6g}")
        run = Run(problem_from(moments), budget or self.terms.guarantee, {"mu": self.terms.guarantee.mu})
        with run.reserved():
            seeds = self._take_seeds(roster)  # after all that may be refused
            sums = run.curator(Curator).answer(NoiseShare(self.terms.share, self.terms.entry()))
            words = _words(sums, self.terms)
            for sign, seed in seeds:
                _add_mask(words, seed, sign)
        header = {"site": self.name, "roster": _digest(self.terms, roster).hex()}
        return _SUM.pack(header, [words.astype("<u8").tobytes()])

    def _require_terms(self, moments: Moments) -> None:
        if not isinstance(moments, Moments):
            raise TypeError(f"moments must be dpgep.Moments, got {type(moments).__name__}")
        self.terms.no_people.require_same_kind(moments)
        ours, theirs = self.terms.model.feature_names, moments.model.feature_names
        if (ours is None) != (theirs is None):
            having, lacking = ("moments", "terms") if ours is None else ("terms", "moments")
            raise ValueError(f"the {having} name columns, the {lacking} do not: name features of both models or none")

    def _take_seeds(self, roster: dict[str, bytes]) -> list[tuple[int, bytes]]:
        """The seeds of all masks, once: the secret key is dropped with them."""
        self._owner.require("this site of a masked sum")  # before the lock, which a fork may have left held
        with self._lock:
            if self._secret is None:
                raise RuntimeError(
                    f"{self.name} has answered in this session: send the same message again, or start a new session"
                )
            seeds = list(self._seeds(self._secret, roster))
            self._secret = None
        return seeds

    def _seeds(self, secret: Any, roster: dict[str, bytes]) -> Iterator[tuple[int, bytes]]:
        """A sign and a seed for each other site: that site has the same seed and the other sign."""
        hashes, hkdf, x25519 = map(_primitives, ("hashes", "kdf.hkdf", "asymmetric.x25519"))
        salt, own = _digest(self.terms, roster), self.terms.sites.index(self.name)
        for place, other in enumerate(self.terms.sites):
            if place == own:
                continue
            try:
                shared = secret.exchange(x25519.X25519PublicKey.from_public_bytes(roster[other]))
            except ValueError:
                raise ValueError(f"the public key of {other} is not a valid one") from None
            pair = json.dumps([f"dpgep masks {_SUM.version}", *sorted((self.name, other), key=self.terms.sites.index)])
            seed = hkdf.HKDF(hashes.SHA256(), length=32, salt=salt, info=pair.encode()).derive(shared)
            yield (1 if own < place else -1), seed

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Site cannot be copied or pickled: two copies could each answer, under the same masks")

    def __repr__(self) -> str:
        state = "has answered" if self._secret is None else "has not answered yet"
        return f"Site({self.name!r} of {len(self.terms.sites)}, session {self.terms.session!r}; {state})"


def release(terms: Terms, keys: Mapping[str, bytes], messages: Mapping[str, bytes]) -> Release:
    """The coordinator's part: the sum of all sites' messages, in which the masks cancel, as one release.

    It is what `dpgep.release` returns of the merged moments of all sites. ``keys`` and ``messages`` are what `Site.key`
    and `Site.mask` of every site returned, by name. Raises ValueError if a site is missing, which the message names:
    the sum of the others stays masked, and a new session is needed; if a message is damaged, or belongs to other keys
    or terms; and if masks do not cancel.
    """
    roster = _roster(terms, keys, None)
    digest, total = noted(_digest(terms, roster).hex()), _zeros(terms)
    for name in _complete(terms, messages, "message"):
        header, payload = _unpacked(_SUM, name, messages[name], {"roster": str})
        if header["roster"] != digest:
            raise ValueError(f"the message of {name} was masked for other keys: it belongs to another session")
        if len(payload) != total.nbytes:
            raise ValueError(f"the message of {name} has {len(payload)} bytes of sums, not {total.nbytes}")
        words = np.frombuffer(payload, dtype="<u8").reshape(total.shape)
        _add(total, words[0], words[1])
    sums = _integers(total, terms)
    facts = replace(terms.facts, n=sums.n) if _opens_n(terms) else terms.facts
    noise = summed_shares(terms.share, len(terms.sites))
    noisy = normalized_moments(facts, terms.layout, sums.n, sums.to_float(), noise)
    budget = terms.guarantee
    public = public_inputs(terms.model, facts.n, {}, facts)
    report = report_of(budget, ((terms.entry(),), budget.mu), facts, public, seeded=False)
    found = Release(terms.model, report, noisy, frozenset([digest]), terms.no_people.preprocessing)
    warn_of_delta(budget, facts.n, found)
    return found


def new_identity() -> tuple[bytes, bytes]:
    """A lasting key pair of a site, (secret, public): ``identity``, and what others put into ``trusted_keys``."""
    secret = _primitives("asymmetric.ed25519").Ed25519PrivateKey.generate()
    return secret.private_bytes_raw(), secret.public_key().public_bytes_raw()


def _roster(
    terms: Terms, keys: Mapping[str, bytes], trusted: Mapping[str, Any] | None, but: str | None = None
) -> dict[str, bytes]:
    """The public keys of all sites in their order, made for these terms, by whom ``trusted`` says (``but`` for one)."""
    roster = {}
    for name in _complete(terms, keys, "key"):
        header, _ = _unpacked(_KEY, name, keys[name], {"terms": dict, "public_key": str})
        try:
            _require_same(name, header["terms"], terms._fields)
        except RecursionError:
            raise ValueError(f"the terms of {name} are nested too deeply") from None
        try:
            roster[name] = bytes.fromhex(header["public_key"])
        except ValueError:
            raise ValueError(f"the public key of {name} is not a valid one") from None
        if trusted is None or name == but:
            continue
        invalid = import_extra("cryptography.exceptions", "sites").InvalidSignature
        try:
            trusted[name].verify(bytes.fromhex(str(header.get("signature"))), _signed(terms, name, roster[name]))
        except (invalid, ValueError):
            raise ValueError(f"the key of {name} is not signed by the identity in trusted_keys") from None
    return roster


def _require_same(name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise ValueError unless terms are the same as JSON, as the seeds depend on: for Python 1 and True are equal."""
    if _json(theirs) != _json(ours):
        both = {key: [each.get(key, "nothing") for each in (theirs, ours)] for key in {**ours, **theirs}}
        differing = [f"{key} ({a!r:.200} and {b!r:.200})" for key, (a, b) in both.items() if _json(a) != _json(b)]
        raise ValueError(f"the terms of {name} differ in {', '.join(differing)}")


def _verifiers(trusted: Mapping[str, bytes]) -> dict[str, Any]:
    """The public keys of identities, ready to verify what these have signed."""
    verifiers = {}
    for name, key in trusted.items():
        try:
            verifiers[name] = _primitives("asymmetric.ed25519").Ed25519PublicKey.from_public_bytes(key)
        except ValueError as error:
            raise ValueError(f"trusted_keys of {name}: {error}") from None
    return verifiers


def _complete(terms: Terms, given: Mapping[str, bytes], what: str) -> tuple[str, ...]:
    """The names of the sites. Raises ValueError where there is not one of each."""
    if missing := [name for name in terms.sites if name not in given]:
        raise ValueError(
            f"no {what} from {', '.join(missing)}: masks cancel in the sum over all sites alone; start a new session, "
            "with a new list of sites"
        )
    if unknown := [name for name in given if name not in terms.sites]:
        raise ValueError(f"a {what} from {', '.join(map(str, unknown))}, none of the sites")
    return terms.sites


def _unpacked(kind: Format, name: str, data: bytes, fields: dict[str, type]) -> tuple[dict[str, Any], memoryview]:
    """(header, payload) of what a site sent: ``fields`` of these types are in the header."""
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f"from {name}: bytes are needed, got {type(data).__name__}")
    try:
        document = opened(bytes(data)).require(kind)
    except ValueError as error:
        raise ValueError(f"from {name}: {error}") from None
    header = document.fields
    for key, its_type in {"site": str, **fields}.items():
        if not isinstance(header.get(key), its_type):
            raise ValueError(f"from {name}: this {kind.name} makes no sense, its {key} is missing or damaged")
    if header["site"] != name:
        raise ValueError(f"what was given as from {name} was made by {header['site']:.200}")
    return header, document.payload


def _digest(terms: Terms, roster: dict[str, bytes]) -> bytes:
    """What seeds depend on: every public fact, and all keys in the order of the sites."""
    keys = [[name, roster[name].hex()] for name in terms.sites]
    return hashlib.sha256(_json({"terms": terms._fields, "keys": keys})).digest()


def _signed(terms: Terms, name: str, public: bytes) -> bytes:
    said = {"kind": _KEY.name, "version": _KEY.version, "terms": terms._fields}
    return _json({**said, "site": name, "public_key": public.hex()})


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _primitives(name: str) -> Any:
    return import_extra(f"cryptography.hazmat.primitives.{name}", "sites")


# ---- integers modulo 2^128 ----


def _sizes(terms: Terms) -> tuple[int, int, int, int]:
    """Numbers of entries: of the second moment's triangle, sums, counts, and, where it is public, n."""
    layout, d, groups = terms.layout, terms.layout.n_features, terms.layout.n_groups
    return layout.n_matrices * d * (d + 1) // 2, d * groups * layout.sums, groups * layout.counts, _opens_n(terms)


def _opens_n(terms: Terms) -> bool:
    """Whether the number of people of all sites becomes public."""
    return terms.facts.adjacency == "replace-one" and not terms.facts.weighted


def _zeros(terms: Terms) -> Words:
    return np.zeros((2, sum(_sizes(terms))), dtype=np.uint64)


def _words(sums: IntegerMoments, terms: Terms) -> Words:
    """The integers of a release, and n where it is public, modulo 2^128."""
    low = _flat((sums.second, sums.sums, sums.counts), sums.n, terms)
    words = np.stack([low, low >> 63]).view(np.uint64)
    if sums.high is not None:
        high = _flat(sums.high, 0, terms)
        _add(words, (high << LOW_BITS).view(np.uint64), (high >> (64 - LOW_BITS)).view(np.uint64))
    return words


def _flat(blocks: tuple[Integers, ...], n: int, terms: Terms) -> Integers:
    """Second moment (its triangle), sums and counts, and n where it is public, as one vector."""
    second, sums, counts = blocks
    people = np.full(int(_opens_n(terms)), n, dtype=np.int64)
    return np.concatenate([*triangle_rows(second), sums.ravel(), counts, people])


def _integers(words: Words, terms: Terms) -> IntegerMoments:
    """The integers that these words are modulo 2^128: of magnitude below 2^103, so that they fit two limbs."""
    top = words[1].view(np.int64) >> (_VALUE_BITS - 64)
    if (top != top >> 63).any():
        raise ValueError("the masks do not cancel: a message was altered, or was not made by this protocol")
    low = (words[0] & np.uint64((1 << LOW_BITS) - 1)).view(np.int64)
    high = (words[0] >> np.uint64(LOW_BITS) | words[1] << np.uint64(64 - LOW_BITS)).view(np.int64)
    ends = np.cumsum(_sizes(terms))[:-1]
    *lows, n = np.split(low, ends)
    *highs, n_high = np.split(high, ends)
    people = (int(n_high[0]) << LOW_BITS) + int(n[0]) if n.size else 0
    if n.size and people < 1:
        raise ValueError("the people of all sites are none: a message was altered, or was not made by this protocol")
    grid: Any = {"bits": terms.no_people.bits, "weight_bits": terms.no_people._weight_bits}
    return IntegerMoments(*_blocks(lows, terms), high=_blocks(highs, terms), n=people, **grid)


def _blocks(parts: list[Integers], terms: Terms) -> tuple[Integers, Integers, Integers]:
    triangle, sums, counts = parts
    layout, d = terms.layout, terms.layout.n_features
    return upper_triangle_of(triangle, *layout.shape[:-2], d, d), sums.reshape(d, -1 if sums.size else 0), counts


def _add_mask(words: Words, seed: bytes, sign: int) -> None:
    """Add the stream of a seed, or subtract it, modulo 2^128."""
    ciphers = _primitives("ciphers")
    stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    zeros, combine = bytes(16 * _CHUNK), _add if sign > 0 else _subtract
    for start in range(0, words.shape[1], _CHUNK):
        chunk = words[:, start : start + _CHUNK]
        mask = np.frombuffer(stream.update(zeros[: chunk.nbytes]), dtype="<u8").reshape(chunk.shape)
        combine(chunk, mask[0], mask[1])


def _add(words: Words, low: Words, high: Words) -> None:
    words[0] += low
    words[1] += high
    words[1] += words[0] < low  # the carry


def _subtract(words: Words, low: Words, high: Words) -> None:
    borrow = words[0] < low
    words[0] -= low
    words[1] -= high
    words[1] -= borrow
