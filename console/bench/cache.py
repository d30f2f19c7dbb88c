"""What triage said before, kept in the user's cache directory: a second look at an unchanged job costs a stat a file.

One file a job. An entry holds as long as nothing has happened to any file that was looked at, or to a directory that
holds one, and as long as rules and readers are the same code. Everything here can be deleted at any time, and a file
that is damaged, foreign or of another version is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

import msgspec
import platformdirs

from console.bench.looked import Looked, unchanged
from console.bench.model import Judged

DIRECTORY_VARIABLE = "QUARTERDECK_CACHE_DIR"
KEPT_DAYS = 60
_MAGIC = b"quarterdeck bench cache 1\n"
TRIALS, ANSWER, NEW = ".trials", ".answer", ".new"
"""Ends of the names of what is kept here: verdicts of a job, a whole answer, either while it is written."""
_HEAD = struct.Struct("<II")  # length and CRC-32 of what follows
_LARGEST = 4 << 20
_CODE = ("outcomes", "bench", "records/harbor", "records/redact.py", "records/regular.py", "records/trial_files.py")


class _Header(msgspec.Struct, array_like=True):
    job: bytes
    device: int
    inode: int
    rules: str


class _Entry(msgspec.Struct, array_like=True):
    name: bytes
    looked_at: list[bytes]
    digest: bytes
    state: str
    judged: msgspec.Raw


class _Name(msgspec.Struct, array_like=True):
    """An entry of which only the name is read."""

    name: bytes


def cache_dir() -> Path | None:
    """The private directory of these files, made when it is missing; None where there can be none."""
    path = place()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return None
        if found.st_mode & 0o077:
            path.chmod(0o700)
    except OSError:
        return None
    return path


def place() -> Path:
    """Where the files are kept, whether or not it exists. `QUARTERDECK_CACHE_DIR` overrides the user's directory."""
    override = os.environ.get(DIRECTORY_VARIABLE)
    root = Path(override).expanduser().absolute() if override else platformdirs.user_cache_path("quarterdeck")
    return root / "bench"


def clear() -> tuple[int, int]:
    """Delete what is kept: number of files and bytes. Files of others in there stay."""
    files = size = 0
    for path in _kept():
        with contextlib.suppress(OSError):
            found = path.lstat().st_size
            path.unlink()
            files, size = files + 1, size + found
    return files, size


def held() -> tuple[int, int]:
    """What is kept: number of files and bytes."""
    sizes = []
    for path in _kept():
        with contextlib.suppress(OSError):
            sizes.append(path.lstat().st_size)
    return len(sizes), sum(sizes)


def _kept() -> list[Path]:
    try:
        return [path for path in place().iterdir() if path.suffix in (TRIALS, ANSWER, NEW)]
    except OSError:
        return []


def code_digest(parts: Sequence[str] = _CODE) -> str:
    """Digest of the source of rules and readers, so that no verdict outlives the code that gave it.

    Args:
        parts: files and folders of the package; others for what other code makes of verdicts.
    """
    package = Path(__file__).resolve().parent.parent
    found = hashlib.sha256()
    for part in parts:
        path = package / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(os.fsencode(file.relative_to(package)) + b"\0")
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


class JobCache:
    """The entries of one job. Use as a context manager: what is new is written at its end.

    `rules` names the rules and the code, as one string; `state` is that of the job, for verdicts that depend on it;
    without a `directory` nothing is kept. That the file cannot be read or written is no failure of anything else. Not
    for several threads.
    """

    def __init__(self, job: Path, rules: str, directory: Path | None, state: str = "") -> None:
        self._state = state
        self._job = job
        self._at: dict[bytes, tuple[int, int]] = {}
        self._map: mmap.mmap | None = None
        self._new: IO[bytes] | None = None
        self._path: Path | None = None
        self._trial = job
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._encode_path)
        self._decoder = msgspec.msgpack.Decoder(Judged, dec_hook=self._decode_path)
        if directory is None:
            return
        try:
            spelled = os.fsencode(os.path.abspath(job))
            found = os.stat(spelled)
            self._header = msgspec.msgpack.encode(_Header(spelled, found.st_dev, found.st_ino, rules))
            self._path = directory / (hashlib.sha256(spelled).hexdigest()[:32] + TRIALS)
            self._read(self._path)
        except (OSError, ValueError, struct.error, msgspec.MsgspecError):
            self._at.clear()

    def _encode_path(self, value: object) -> int:
        return int(value != self._job)

    def _decode_path(self, kind: type, value: object) -> object:
        if kind is not Path:
            return value  # of a dictionary whose values may be anything
        return self._trial if value else self._job

    def _read(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.getuid():
                return
            data = self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        at = len(_MAGIC)
        if data[:at] != _MAGIC:
            return
        at, size = _frame(data, at)
        if data[at : at + size] != self._header:
            return
        names = msgspec.msgpack.Decoder(_Name)
        while (at := at + size) < len(data):
            at, size = _frame(data, at)
            self._at[names.decode(data[at : at + size]).name] = at, size

    def get(self, trial: Path) -> Judged | None:
        """What was said of a trial, None when it was not, or when one of its files has changed."""
        entry = self._valid(trial)
        if entry is None:
            return None
        try:
            self._trial = trial
            return self._decoder.decode(entry.judged)
        except msgspec.MsgspecError:
            del self._at[os.fsencode(trial.name)]
            return None

    def digest(self, trial: Path) -> bytes | None:
        """What a verdict rests on, when it is known and still holds."""
        entry = self._valid(trial)
        return None if entry is None else entry.digest + entry.state.encode()

    def _valid(self, trial: Path) -> _Entry | None:
        name = os.fsencode(trial.name)
        where = self._at.get(name)
        if where is None or self._map is None:
            return None
        entry = msgspec.msgpack.decode(self._map[where[0] : sum(where)], type=_Entry)
        if entry.state in ("", self._state) and unchanged(trial, entry.looked_at, entry.digest):
            return entry
        del self._at[name]
        return None

    def put(self, looked: Looked | None, judged: Judged, *, of_job: bool = False) -> None:
        """Keep a verdict.

        Args:
            looked: of before it was given, else a change in between goes unseen.
            of_job: it holds only while the job is in the same state.
        """
        if self._path is None or looked is None or not looked.settled:
            return
        try:
            raw = msgspec.Raw(self._encoder.encode(judged))
            name, state = os.fsencode(judged.trial.path.name), self._state if of_job else ""
            data = msgspec.msgpack.encode(_Entry(name, looked.names, looked.digest, state, raw))
            if len(data) > _LARGEST:
                return
            if self._new is None:
                self._new = tempfile.NamedTemporaryFile(dir=self._path.parent, suffix=NEW, delete=False)  # noqa: SIM115
                self._new.write(_MAGIC)
                self._write(self._header)
            self._write(data)
        except (UnicodeEncodeError, OverflowError):  # a text that is no text, a number that is too large
            return
        except OSError:
            self._give_up()

    def _write(self, data: bytes) -> None:
        assert self._new is not None
        self._new.write(_HEAD.pack(len(data), zlib.crc32(data)) + data)

    def _give_up(self) -> None:
        self._path = None
        if self._new is not None:
            with contextlib.suppress(OSError):
                self._new.close()
            with contextlib.suppress(OSError):
                os.unlink(self._new.name)
            self._new = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is new, with what still held. Nothing happens when nothing is new."""
        data, self._map = self._map, None
        try:
            if self._new is not None and self._path is not None:
                for at, size in self._at.values():
                    assert data is not None
                    self._write(data[at : at + size])
                self._new.close()
                os.replace(self._new.name, self._path)
                self._new = None
                _drop_old(self._path.parent)
        except OSError:
            self._give_up()
        finally:
            if data is not None:
                data.close()


def _drop_old(directory: Path) -> None:
    """Delete what nobody has written for long: jobs are moved and deleted."""
    oldest = time.time() - KEPT_DAYS * 86_400
    for path in _kept():
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < oldest:
                path.unlink()


def _frame(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Where what the head at `at` announces begins, and its length. Raises ValueError where it is damaged."""
    size, check = _HEAD.unpack_from(data, at)
    at += _HEAD.size
    if size > _LARGEST or at + size > len(data) or zlib.crc32(data[at : at + size]) != check:
        raise ValueError("damaged")
    return at, size
