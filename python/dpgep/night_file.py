"""The file of `dpgep.Nights`: one file, to which nights are added; each is in it as a whole, or not at all.

    header     "dpgep-nights 3"; how many nights are acknowledged; sizes; the description: what the first night fixed
    states     two, of even and odd nights: a number, a secret, from which noise is drawn and which follows from all
               nights before, and the exact sums so far
    nights     label; number of people so far where it is public; 16 bytes for each person where ids say who they are;
               published sums so far; on the first keep + 1 nights a place for noise of sums so far, which is used again

A night is written, its state last, with checksums, forced to the disk once, and then acknowledged. So a state whose
checksums are right is of a night that is there; one that is not acknowledged is forced to the disk before anybody sees
it. Of a torn one nobody has seen anything: the state before it counts, of which nothing was overwritten. Damage of an
acknowledged night is refused.

The file is as confidential as rows, and only its owner can read it. Exact sums but for those of the last two nights,
and noise that is no longer needed, are overwritten.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep.data.ids import Digests, numbered_digests
from dpgep.data.integer_moments import LOW_BITS
from dpgep.privacy.budget_file import force, sync_folder, try_lock, unlock, write_all
from dpgep.privacy.curator import watched_draws

_MAGIC = b"dpgep-nights 3\n\0"
# Of what follows the magic: one more than the acknowledged nights, 0 where the file was not begun to the end; checksum
# of the description and its bytes; numbers that a night publishes; places for noise.
_HEAD = struct.Struct("<16sQIIQQ")
_ACKNOWLEDGED = struct.Struct("<Q")
# Checksums of the rest, of the night, and of its noise; limbs of exact sums, which follow; the night's number; where it
# begins and ends, and its noise lies; its link; the secret of the next night.
_STATE = struct.Struct("<IIIIQQQQ16s32s")
# People so far, ids, bytes of the label; the link: a hash of all labels and secrets up to here.
_NIGHT = struct.Struct("<qQH16s")
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


# The head of a state, and the labels and nights up to it: what was read before is not verified again.
Known = tuple[bytes, list[str], list[Night]]


class NightFile:
    """The file at ``path``. All that is read or written in one `transaction` is of one state."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        self._known: Known = b"", [], []

    @contextmanager
    def transaction(self, *, write: bool = False, create: bool = False) -> Iterator[NightLog]:
        """Its nights: a writer is alone, and what it wrote is on the disk at the end, or gone after an error.

        Raises OSError where it cannot be read or written, ValueError where it is something else.
        """
        if create:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            if not self.path.stat().st_size:  # also where somebody else has made it, for all to read
                self.path.chmod(0o600)
        elif not self.path.exists():
            raise ValueError(NO_NIGHTS.format(self.path))
        with self._locked(write=write) as file:
            with self._named():
                log = NightLog(file, self.path, self._known)
            yield log
            with self._named():
                log.commit()
            self._known = log.known

    @contextmanager
    def _locked(self, *, write: bool) -> Iterator[FileIO]:
        with self._named():
            file = FileIO(os.fspath(self.path), "r+" if write else "r")
        with file:
            with self._named():
                until = time.monotonic() + _PATIENCE
                while not try_lock(file.fileno(), write):
                    if time.monotonic() > until:
                        raise TimeoutError("another process uses them")
                    time.sleep(_PAUSE)
            try:
                with self._named():
                    if not os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                        raise OSError("another file was put in this place")
                yield file
            finally:
                unlock(file.fileno())  # also where a forked child has inherited the file

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

    def __init__(self, file: FileIO, path: Path, known: Known = (b"", [], [])) -> None:
        self._file, self._path = file, path
        self.description: bytes | None = None
        self.labels: list[str] = []
        self.nights: list[Night] = []
        self._head, *_ = self._known = known
        self._writes: list[tuple[int, bytes]] = []
        self._new: tuple[int, NDArray[np.float64]] | None = None
        head = self._read(0, _HEAD.size)
        if not head.startswith(_MAGIC) and not _MAGIC.startswith(head):
            raise ValueError(f"{path} holds no nights, or nights of another version of dpgep: go on with that one")
        head = head.ljust(_HEAD.size, b"\0")
        if _HEAD.unpack(head)[1]:
            self._open(head)

    @property
    def known(self) -> Known:
        """For the next transaction."""
        return self._head, self.labels, self.nights

    def _open(self, head: bytes) -> None:
        begun, checksum, length = _HEAD.unpack(head)[1:4]
        self._size, self._places = (int(each) for each in _HEAD.unpack(head)[4:])
        self.description, slot = self._read(_HEAD.size, length), _STATE.size + 16 * self._size
        self._states: list[int] = [_HEAD.size + length + which * slot for which in range(3)]
        self._require(zlib.crc32(self.description, zlib.crc32(head[-16:])) == checksum)
        number, start, link = self._state()
        self._require(number + 1 >= begun)
        if number + 1 > begun:  # its process was killed, and others have not seen it yet
            force(self._file.fileno())
        _, labels, nights = self._known
        if nights and len(nights) <= number and self._night(nights[-1].start) == (labels[-1], nights[-1]):
            self.labels, self.nights = labels.copy(), nights.copy()
        while len(self.nights) < number:
            label, night = self._night(self._end())
            self.labels.append(label)
            self.nights.append(night)
        self._require(not number or (self.nights[-1].start, self.nights[-1].link) == (start, link))

    def _state(self) -> tuple[int, int, bytes]:
        """(number, where it begins, link) of the last night that is there as a whole; its secret and sums are kept."""
        heads = [self._read(place, _STATE.size).ljust(_STATE.size, b"\0") for place in self._states[:2]]
        for slot in sorted((0, 1), key=lambda slot: -int(_STATE.unpack(heads[slot])[4])):
            whole, *checksums, limbs, number, start, end, noise, link, self.secret = _STATE.unpack(heads[slot])
            self._exact = self._read(self._states[slot] + _STATE.size, 8 * limbs * self._size)
            is_known = heads[slot] == self._head
            if is_known or zlib.crc32(self._exact, zlib.crc32(heads[slot][4:])) == whole:
                parts = (start, end - start), (noise, 8 * self._size * (number > 0))
                if is_known or [zlib.crc32(self._read(*part)) for part in parts] == checksums:
                    self._head = heads[slot]
                    return number, start, link
        raise self._damaged()

    def _night(self, start: int) -> tuple[str, Night]:
        head = self._read(start, _NIGHT.size)
        self._require(len(head) == _NIGHT.size)
        people, n_ids, length, link = _NIGHT.unpack(head)
        ids = start + _NIGHT.size + length
        self._require(ids + 16 * n_ids <= self._bytes())
        label = self._read(start + _NIGHT.size, length).decode(errors="replace")
        return label, Night(people, link, start, ids, ids + 16 * n_ids)

    def _end(self) -> int:
        """Where the next night begins."""
        if not self.nights:
            return self._states[2]
        return self.nights[-1].published + 8 * self._size * (1 + (len(self.nights) <= self._places))

    def begin(self, description: bytes, secret: bytes, size: int, keep: int) -> None:
        """Begin the file, on the disk: a night publishes ``size`` numbers, and noise of ``keep`` nights is needed.

        There is one more place for noise than that: the next night may be torn.
        """
        sizes = struct.pack("<QQ", size, keep + 1)
        head = struct.pack("<II", zlib.crc32(description, zlib.crc32(sizes)), len(description)) + sizes + description
        start = _HEAD.size + len(description) + 2 * (_STATE.size + 16 * size)
        os.ftruncate(self._file.fileno(), 0)
        self._write(0, _MAGIC + bytes(_ACKNOWLEDGED.size) + head)
        self._write(_HEAD.size + len(description), _packed_state(0, [b"", b""], (start, start, 0), bytes(16), secret))
        force(self._file.fileno())
        self._acknowledge()
        force(self._file.fileno())
        sync_folder(self._path.parent)
        self._open(self._read(0, _HEAD.size))

    def _acknowledge(self) -> None:
        self._write(len(_MAGIC), _ACKNOWLEDGED.pack(len(self.nights) + 1))

    def last(self) -> int:
        """How many nights there are."""
        return len(self.nights)

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
        return night.people, np.frombuffer(self._read(night.published, 8 * self._size), "<f8")

    def exact(self) -> NDArray[np.int64]:
        """(2, size), limbs of the exact sums of all nights so far; 0 before there are any."""
        if not self._exact:
            return np.zeros((2, 1), np.int64)
        limbs = np.frombuffer(self._exact, "<i8").reshape(-1, self._size)
        return limbs if len(limbs) == 2 else np.stack([limbs[0] & (1 << LOW_BITS) - 1, limbs[0] >> LOW_BITS])

    def noise(self, number: int) -> NDArray[np.int64]:
        """(size,), noise of the sums up to a night, which is one of the last ``keep``."""
        return np.frombuffer(self._read(self._place(number), 8 * self._size), "<i8")

    def _place(self, number: int) -> int:
        """Where the noise of the sums up to a night lies."""
        return self.nights[(number - 1) % self._places].published + 8 * self._size

    def stream(self, exact: NDArray[np.int64]) -> core.NoiseStream:
        """For the noise of the next night: another one for other sums so far, on any night up to this one.

        A hash of the secret and the sums is its key and the secret of nights to come. (If the key followed from this
        night's sums alone, two copies that get the same rows on other nights would subtract the noise of both.)
        """
        version = core.__version__.encode()[:16]  # another may draw other noise of the same key
        drawn = hashlib.blake2b(_packed_limbs(exact), key=self.secret, person=version).digest()
        self.secret = drawn[32:]
        return core.NoiseStream(drawn[:32], transcript=watched_draws())

    def add(
        self,
        label: str,
        people: int,
        ids: Sequence[Digests],
        published: NDArray[np.float64],
        noise: NDArray[np.int64],
        exact: NDArray[np.int64],
    ) -> None:
        """Add a night after all others, with the noise and the exact sums of everything up to it."""
        start, number, name = self._end(), len(self.nights) + 1, label.encode()
        before = self.nights[-1].link if self.nights else b""
        link = hashlib.blake2b(before + name, key=self.secret, digest_size=16).digest()
        whose = b"".join(part.astype("<u8").tobytes() for part in ids)
        night = _NIGHT.pack(people, len(whose) // 16, len(name), link) + name + whose
        end = start + len(night)
        self.labels.append(label)
        self.nights.append(Night(people, link, start, end - len(whose), end))
        contents = [night + published.astype("<f8").tobytes(), noise.astype("<i8").tobytes()]
        places = start, start + len(contents[0]), self._place(number)
        state = _packed_state(number, contents, places, link, self.secret, _packed_limbs(exact))
        self._writes = [(start, contents[0]), (places[2], contents[1]), (self._states[number % 2], state)]
        self._head, self._new = state[: _STATE.size], (people, published)

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
            whose = self._read(night.ids, night.published - night.ids)
            yield np.frombuffer(whose, "<u8").astype(np.uint64).reshape(-1, 2)

    def _bytes(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _read(self, place: int, size: int) -> bytes:
        """Fewer bytes where the file ends."""
        self._file.seek(place)
        found = self._file.read(min(size, max(0, self._bytes() - place)))
        while found and len(found) < size and (more := self._file.read(size - len(found))):
            found += more
        return found

    def _write(self, place: int, content: bytes) -> None:
        self._file.seek(place)
        write_all(self._file.fileno(), content)

    def _require(self, is_whole: bool) -> None:
        if not is_whole:
            raise self._damaged()

    def _damaged(self) -> ValueError:
        return ValueError(f"{self._path} is damaged: go on from its backup, with the same rows of nights it lacks")


def _packed_state(
    number: int,
    contents: Sequence[bytes],
    places: tuple[int, int, int],
    link: bytes,
    secret: bytes,
    exact: bytes = b"",
) -> bytes:
    """A state in bytes: ``contents`` are the night and its noise, ``places`` where they lie."""
    checksums = [zlib.crc32(content) for content in contents]
    limbs = len(exact) // len(contents[1]) if exact else 0
    rest = _STATE.pack(0, *checksums, limbs, number, *places, link, secret)[4:] + exact
    return struct.pack("<I", zlib.crc32(rest)) + rest


def _packed_limbs(exact: NDArray[np.int64]) -> bytes:
    """Exact sums, in one limb where that is enough: a function of the sums alone."""
    low, high = exact
    most = 1 << _LIMB_BITS - LOW_BITS
    if -most <= high.min(initial=0) and high.max(initial=0) < most:
        exact = (high << LOW_BITS) + low
    return exact.astype("<i8").tobytes()
