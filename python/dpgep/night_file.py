"""The file of `dpgep.Nights`: one file, to which nights are added; each is in it as a whole, or not at all.

    header     "dpgep-nights 3"; how many nights are acknowledged; sizes; the description: what the first night fixed
    states     two, of even and odd nights: a number, a secret, from which noise is drawn and which follows from all
               nights before, and the exact sums so far
    nights     label; number of people so far where it is public; 16 bytes for each person where ids say who they are;
               published sums so far; on the first keep + 1 nights a place for noise of sums so far, which is used again

A night is written, its state last, forced to the disk once, and then acknowledged. Each part has a checksum, which is
right for one night of one register alone. So a state that is whole, with all parts of its night, is of a night that is
there; one that is not acknowledged is forced to the disk before anybody sees it. Of a torn one nobody has seen
anything: the state before it counts, of which nothing was overwritten. Parts of an acknowledged night that are damaged
are refused when they are read, as are those of a copy that was made while nights were added: with the noise of another
night, exact sums would be published.

The file is as confidential as rows, and only its owner can read it. Exact sums but for those of the last two nights,
and noise that is no longer needed, are overwritten.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.data.ids import Digests, numbered_digests
from dpgep.data.integer_moments import LOW_BITS
from dpgep.privacy.budget_file import force, try_lock, unlock, write_all
from dpgep.privacy.curator import watched_draws
from dpgep.serialization import sync_folder

_MAGIC = b"dpgep-nights 3\n\0"
# Of what follows the magic: one more than the acknowledged nights, 0 where the file was not begun to the end; bytes of
# the description; numbers that a night publishes; places for noise.
_HEAD = struct.Struct("<16sQQQQ")
_ACKNOWLEDGED = struct.Struct("<Q")
# The night's number; where it and its noise lie; limbs of exact sums, which follow; its link; the secret of the next.
_STATE = struct.Struct("<QQQQ16s32s")
# People so far, ids, bytes of the label; the link: a hash of all labels and secrets up to here.
_NIGHT = struct.Struct("<qQQ16s")
_CHECKSUM = struct.Struct("<I")
# Exact sums below 2^62 are one limb.
_LIMB_BITS = 62
# Seconds to wait for other processes, and between two looks.
_PATIENCE, _PAUSE = 60.0, 0.002
NO_NIGHTS = "{} holds no nights yet: give their budget, as epsilon= and delta="


class Night(NamedTuple):
    """Where a night lies in the file: it begins, then the ids, then what is published."""

    people: int
    link: bytes
    start: int
    ids: int
    published: int


# Labels and nights that were read before.
Known = tuple[list[str], list[Night]]


class NightFile:
    """The file at ``path``. All that is read or written in one `transaction` is of one state."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        self._known: Known = [], []

    @contextmanager
    def transaction(self, *, write: bool = False, create: bool = False) -> Iterator[NightLog]:
        """Its nights: a writer is alone, and what it wrote is on the disk at the end, or gone after an error.

        Raises OSError where it cannot be read or written, ValueError where it is something else.
        """
        if create:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            if not self.path.stat().st_size:  # also where somebody else has made it, for all to read
                self.path.chmod(0o600)
        with self._named():
            try:
                file = FileIO(os.fspath(self.path), "r+" if write else "r")
            except FileNotFoundError:
                raise ValueError(NO_NIGHTS.format(self.path)) from None
        with file:
            with self._named():
                self._lock(file, write=write)
            try:
                with self._named():
                    if not os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                        raise OSError("another file was put in this place")
                    log = NightLog(file, self.path, self._known)
                yield log
                with self._named():
                    log.commit()
                self._known = log.labels, log.nights
            finally:
                unlock(file.fileno())  # also where a forked child has inherited the file

    def _lock(self, file: FileIO, *, write: bool) -> None:
        until = time.monotonic() + _PATIENCE
        while not try_lock(file.fileno(), write):
            if time.monotonic() > until:
                raise TimeoutError("another process uses them")
            time.sleep(_PAUSE)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(f"the nights in {self.path} cannot be used: {error}; nothing was added") from error


class NightLog:
    """What is in a file, within a transaction. ``description`` is None before the first night has begun it.

    ``labels`` and ``nights`` are in their order.
    """

    def __init__(self, file: FileIO, path: Path, known: Known = ([], [])) -> None:
        self._file, self._path, self._known = file, path, known
        self.description: bytes | None = None
        self.labels: list[str] = []
        self.nights: list[Night] = []
        self._writes: list[tuple[int, bytes]] = []
        self._new: tuple[int, NDArray[np.float64]] | None = None
        self._open()

    def _open(self) -> None:
        self._length = os.fstat(self._file.fileno()).st_size
        head = bytes(self._read(0, _HEAD.size))
        if not head.startswith(_MAGIC) and not _MAGIC.startswith(head.rstrip(b"\0")):
            raise ValueError(
                f"{self._path} holds no nights, or nights of another version of dpgep: go on with that one"
            )
        head = head.ljust(_HEAD.size, b"\0")
        begun, length, self._size, self._places = map(int, _HEAD.unpack(head)[1:])
        start, slot = _HEAD.size + length + _CHECKSUM.size, _STATE.size + 16 * self._size + _CHECKSUM.size
        self._states: list[int] = [start + which * slot for which in range(3)]
        if not begun:
            self._require(self._length <= self._states[2])
            return
        self.description = bytes(self._content(_HEAD.size, length, head[-16:]))
        number, start, link = self._state(begun)
        if number + 1 > begun:  # its process was killed, and others have not seen it yet
            force(self._file.fileno())
        labels, nights = self._known
        if nights and len(nights) <= number and self._read(nights[-1].start, _NIGHT.size)[-16:] == nights[-1].link:
            self.labels, self.nights = labels.copy(), nights.copy()
        while len(self.nights) < number:
            label, night = self._night(self._end())
            self.labels.append(label)
            self.nights.append(night)
        if number:
            self._require((self.nights[-1].start, self.nights[-1].link) == (start, link))
            self._require(self._end() <= self._length)

    def _state(self, begun: int) -> tuple[int, int, bytes]:
        """(number, where it begins, link) of the last night that is there as a whole; its secret and sums are kept."""
        heads = [
            _STATE.unpack(bytes(self._read(place, _STATE.size)).ljust(_STATE.size, b"\0")) for place in self._states[:2]
        ]
        for slot in sorted((0, 1), key=lambda slot: -int(heads[slot][0])):
            number, start, noise, limbs, link, self.secret = heads[slot]
            sums = 8 * self._size
            with suppress(ValueError):  # it is torn
                self._exact = self._content(self._states[slot], _STATE.size + limbs * sums, link)[_STATE.size :]
                self._require(number + 1 >= begun)
                if number + 1 > begun:
                    _, night = self._night(start)
                    self._content(night.ids, night.published - night.ids - _CHECKSUM.size, link)
                    self._content(night.published, sums, link)
                    self._content(noise, sums, link)
                return number, start, link
        raise self._damaged()

    def _night(self, start: int) -> tuple[str, Night]:
        head = self._read(start, _NIGHT.size)
        self._require(len(head) == _NIGHT.size)
        people, n_ids, length, link = _NIGHT.unpack(head)
        label = str(self._content(start, _NIGHT.size + length, link)[_NIGHT.size :], "utf-8")
        ids = start + _NIGHT.size + length + _CHECKSUM.size
        return label, Night(people, link, start, ids, ids + 16 * n_ids + _CHECKSUM.size)

    def _end(self) -> int:
        """Where the next night begins."""
        if not self.nights:
            return self._states[2]
        each = 8 * self._size + _CHECKSUM.size
        return self.nights[-1].published + each * (1 + (len(self.nights) <= self._places))

    def begin(self, description: bytes, secret: bytes, size: int, keep: int) -> None:
        """Begin the file, on the disk: a night publishes ``size`` numbers, and noise of ``keep`` nights is needed.

        There is one more place for noise than that: the next night may be torn.
        """
        os.ftruncate(self._file.fileno(), 0)
        head = _HEAD.pack(_MAGIC, 0, len(description), size, keep + 1)
        state = _STATE.pack(0, 0, 0, 0, bytes(16), secret)
        rest = _sealed([description], head[-16:]) + _sealed([state], bytes(16))
        for place, content in (0, head), (len(head), rest):
            self._write(place, content)
            force(self._file.fileno())
        self._acknowledge()
        force(self._file.fileno())
        sync_folder(self._path.parent)
        self._open()

    def _acknowledge(self) -> None:
        self._write(len(_MAGIC), _ACKNOWLEDGED.pack(len(self.nights) + 1))

    def number(self, label: str) -> int | None:
        """That of a night; None where there is none of this label."""
        return self.labels.index(label) + 1 if label in self.labels else None

    def so_far(self, number: int) -> tuple[int, NDArray[np.float64]]:
        """(people, published sums) of nights 1 to ``number``; (0, 0) of none."""
        if number < 1:
            return 0, np.zeros(1)
        if self._new is not None and number == len(self.nights):
            return self._new
        night = self.nights[number - 1]
        return night.people, np.frombuffer(self._content(night.published, 8 * self._size, night.link), "<f8")

    def exact(self) -> NDArray[np.int64]:
        """(2, size), limbs of the exact sums of all nights so far, the upper one 0 where the lower is enough."""
        found = np.zeros((2, self._size), np.int64)
        limbs = np.frombuffer(self._exact, "<i8").reshape(-1, self._size)
        found[: len(limbs)] = limbs
        return found

    def noise(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """(k, size), noise of the sums up to each of some nights, which are among the last ``keep``."""
        found = np.empty((len(numbers), self._size + 1), "<i8")  # with room for checksums
        for row, number in zip(found, numbers, strict=True):
            self._checked(self._place(number), row.view(np.uint8).data[: -_CHECKSUM.size], self.nights[number - 1].link)
        return found[:, :-1]

    def _place(self, number: int) -> int:
        """Where the noise of the sums up to a night lies."""
        return self.nights[(number - 1) % self._places].published + 8 * self._size + _CHECKSUM.size

    def stream(self, exact: NDArray[np.int64]) -> core.NoiseStream:
        """For the noise of the next night: another one for other sums so far, on any night up to this one.

        They are those of the night that is added next. A hash of the secret and the sums is its key and the secret of
        nights to come. (If the key followed from this night's sums alone, two copies that get the same rows on other
        nights would subtract the noise of both.)
        """
        version = core.__version__.encode()[:16]  # another may draw other noise of the same key
        self._exact = _packed_limbs(exact)
        drawn = hashlib.blake2b(self._exact, key=self.secret, person=version).digest()
        self.secret = drawn[32:]
        return core.NoiseStream(drawn[:32], transcript=watched_draws())

    def add(
        self, label: str, people: int, ids: Sequence[Digests], published: NDArray[np.float64], noise: NDArray[np.int64]
    ) -> None:
        """Add a night after all others, with the noise of everything up to it, for whose sums `stream` was asked."""
        start, number, name = self._end(), len(self.nights) + 1, label.encode()
        before = self.nights[-1].link if self.nights else b""
        link = hashlib.blake2b(before + name, key=self.secret, digest_size=16).digest()
        whose = b"".join(part.astype("<u8").tobytes() for part in ids)
        night = _sealed([_NIGHT.pack(people, len(whose) // 16, len(name), link), name], link)
        places = start + len(night), start + len(night) + len(whose) + _CHECKSUM.size
        self.labels.append(label)
        self.nights.append(Night(people, link, start, *places))
        place = self._place(number)
        state = _STATE.pack(number, start, place, self._exact.nbytes // (8 * self._size), link, self.secret)
        self._writes = [
            (start, night + _sealed([whose], link)),
            (places[1], _sealed([published.astype("<f8", copy=False)], link)),
            (place, _sealed([noise.astype("<i8", copy=False)], link)),
            (self._states[number % 2], _sealed([state, self._exact], link)),
        ]
        self._new = people, published

    def commit(self) -> None:
        """What was added is on the disk when this returns; after an error it is torn."""
        if not self._writes:
            return
        try:
            for place, content in self._writes:
                self._write(place, content)
            force(self._file.fileno())
        except BaseException:
            with suppress(OSError):
                self._write(self._writes[-1][0], bytes(_STATE.size))
            raise
        with suppress(OSError):  # the night is there
            self._acknowledge()

    def somebody(self) -> list[Digests]:
        """The id of one person, where anybody was counted."""
        return next(([ids[:1]] for ids in self._ids() if len(ids)), [])

    def came(self, times: int) -> list[Digests]:
        """The ids of all people who came on that many nights."""
        ids = list(self._ids())
        if not any(map(len, ids)):
            return []
        numbers, people = numbered_digests(np.concatenate(ids))
        found = people[np.bincount(numbers) >= times]
        return [found] if len(found) else []

    def _ids(self) -> Iterator[Digests]:
        """Of each night."""
        for night in self.nights:
            whose = self._content(night.ids, night.published - night.ids - _CHECKSUM.size, night.link)
            yield np.frombuffer(whose, "<u8").astype(np.uint64).reshape(-1, 2)

    def _read(self, place: int, size: int) -> memoryview:
        """Fewer bytes where the file ends."""
        found = memoryview(bytearray(min(size, max(0, self._length - place))))
        return found[: self._fill(place, found)]

    def _fill(self, place: int, found: memoryview) -> int:
        """How many bytes there were."""
        self._file.seek(place)
        n = 0
        while n < len(found) and (more := self._file.readinto(found[n:])):
            n += more
        return n

    def _content(self, place: int, size: int, link: bytes) -> memoryview:
        """Raises ValueError where its checksum is not that of the night."""
        self._require(place + size + _CHECKSUM.size <= self._length)
        return self._checked(place, memoryview(bytearray(size + _CHECKSUM.size)), link)

    def _checked(self, place: int, found: memoryview, link: bytes) -> memoryview:
        """The same, in this memory, which ends with the checksum."""
        content, whole = found[: -_CHECKSUM.size], self._fill(place, found) == len(found)
        self._require(whole and found[-_CHECKSUM.size :] == _checksum(content, link))
        return content

    def _write(self, place: int, content: bytes) -> None:
        self._file.seek(place)
        write_all(self._file.fileno(), content)

    def _require(self, is_whole: bool) -> None:
        if not is_whole:
            raise self._damaged()

    def _damaged(self) -> ValueError:
        return ValueError(f"{self._path} is damaged: go on from its backup, with the same rows of nights it lacks")


def _checksum(content: Any, link: bytes) -> bytes:
    """Of a part of the night of this link."""
    return _CHECKSUM.pack(core.crc32(content, core.crc32(link)))


def _sealed(parts: Sequence[Any], link: bytes) -> bytes:
    value = core.crc32(link)
    for part in parts:
        value = core.crc32(part, value)
    return b"".join([*parts, _CHECKSUM.pack(value)])


def _packed_limbs(exact: NDArray[np.int64]) -> memoryview:
    """Exact sums, in one limb where that is enough: a function of the sums alone."""
    low, high = exact
    most = 1 << _LIMB_BITS - LOW_BITS
    if -most <= high.min(initial=0) and high.max(initial=0) < most:
        exact = (high << LOW_BITS) + low
    return exact.astype("<i8", copy=False).data.cast("B")
