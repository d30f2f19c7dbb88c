"""The call journal: what becomes of a trial's model calls, on the disk as it happens.

One file a try, `<directory>/step-NNNNNN/<key>.calls`, whose records are those of `records.capture_format`. A record
is the operating system's when `write` returns, so that the death of the process loses nothing, and the disk's when
`durable` does. A sealed trial's file is compressed beside the loop (`sealing`). When a try that has a file is opened
again, because a resumed run does its step again, the earlier file is set aside as `<key>.calls.earlier-N` (and `.zst`
when it was sealed): readers show the newest one, and nothing is ever overwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from console.capture.encodable import encodable
from console.capture.sealing import seal_file, sync_dirs, write_all
from console.errors import CaptureError
from console.records.capture_format import Opened, Record, Sealed
from console.records.capture_frames import PLAIN, SEALED, FrameError, encode, header_seed, is_key, new_header
from console.records.capture_paths import earlier_files

FILES_OPEN = 128
"""Files that are open at once at most; the others are opened again when something is written to them."""
FLUSHES_AT_ONCE = 64
_FLUSHERS, _PACKERS = 4, 2
_log = logging.getLogger(__name__)


class CaptureWriteError(CaptureError, OSError):
    """A call could not be put on the disk. What was written before stays readable."""


class TrialJournal:
    """The file of one try. Belongs to the loop's thread; made by `CallJournal.open_trial`.

    Attributes:
        key: the try; path: its file, sealed once it is; size: bytes written, before compression.
    """

    def __init__(self, journal: CallJournal, key: str, path: Path, header: bytes) -> None:
        self.key, self.path, self.size = key, path, 0
        self._journal = journal
        self._seed = header_seed(header)
        self._durable = 0
        self._torn = False
        self._failed: OSError | None = None
        self._sealing: asyncio.Task[Path] | None = None

    def write(self, record: Record) -> None:
        """Append a record; it is the operating system's when this returns.

        Raises:
            OSError: it cannot be written, and the file is as it was before; or an earlier one could not be made
                durable, after which nothing more is taken.
            ValueError: the record is too large, or the trial is sealed.
        """
        if self._sealing is not None:
            raise ValueError(f"{self.key} is sealed")
        self._append(self._frame(record))

    def _frame(self, record: Record) -> bytes:
        try:
            return encode(record, self._seed)
        except UnicodeEncodeError:
            clean = _readable(msgspec.to_builtins(record, builtin_types=(bytes,)))
            return encode(msgspec.convert(clean, type(record)), self._seed)

    def _append(self, data: bytes) -> None:
        if self._failed is not None:
            raise CaptureWriteError(f"{self.path}: was not put on the disk before ({self._failed})")
        fd = self._journal._descriptor(self)
        if self._torn:
            os.ftruncate(fd, self.size)
        self._torn = True
        try:
            write_all(fd, data)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, self.size)
                self._torn = False
            raise
        self._torn = False
        self.size += len(data)

    async def durable(self) -> None:
        """Until all that was written before is on the disk. One flush serves all who wait. Raises CaptureWriteError."""
        wanted = self.size
        while self._durable < wanted:
            error = self._failed or await self._journal._flush(self)
            if error is not None:
                raise CaptureWriteError(f"{self.path}: cannot be put on the disk ({_why(error)})") from error

    async def seal(self, sealed: Sealed) -> Path:
        """Write the last record and compress the file beside the loop; the path of the sealed file, which is durable.

        When there is no room for it the file stays as it is, whole and durable, and its path is returned. A second
        call waits for the first and changes nothing. Raises OSError: the record cannot be written (the trial is not
        sealed then), or not made durable; CaptureError: the file on the disk is not what was written.
        """
        if self._sealing is None:
            self.write(sealed)
            self._sealing = asyncio.get_running_loop().create_task(self._pack())
            self._journal._sealing.add(self._sealing)
            self._sealing.add_done_callback(self._journal._sealing.discard)
        return await asyncio.shield(self._sealing)

    async def _pack(self) -> Path:
        target = self.path.with_name(self.key + SEALED)
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._journal._packers, seal_file, self.path, target, self.size
            )
        except OSError as error:
            _log.warning("%s: stays uncompressed (%s)", self.path, _why(error))
            await self.durable()
            self._journal._forget(self)
            return self.path
        except FrameError as error:
            raise CaptureError(f"{self.path}: is not what was written ({error}); do not train on it") from error
        self.path, self._durable = target, self.size
        self._journal._forget(self)
        return target


class CallJournal:
    """The files of a run's captured calls. All methods belong to one event loop.

    Args:
        directory: the run's `capture`, made when missing (0700). files_open: how many files are open at once at most.
    """

    def __init__(self, directory: Path, files_open: int = FILES_OPEN) -> None:
        self._directory = directory
        self._files_open = max(4, min(files_open, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._trials: set[TrialJournal] = set()
        self._sealing: set[asyncio.Task[Path]] = set()
        self._files: OrderedDict[TrialJournal, int] = OrderedDict()
        self._pinned: set[TrialJournal] = set()
        self._unnamed: dict[TrialJournal, list[Path]] = {}
        self._waiting: dict[TrialJournal, asyncio.Future[OSError | None]] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._flushers = ThreadPoolExecutor(_FLUSHERS, "capture-flush")
        self._packers = ThreadPoolExecutor(_PACKERS, "capture-seal")

    def open_trial(self, opened: Opened) -> TrialJournal:
        """Begin the file of a try with this record.

        Raises CaptureWriteError, and ValueError: the key cannot name a file.
        """
        if not is_key(opened.key) or not 0 <= opened.step < 10**9:
            raise ValueError(f"{opened.key!r} in step {opened.step} cannot name a file")
        directory = self._directory / f"step-{opened.step:06d}"
        header = new_header()
        trial = TrialJournal(self, opened.key, directory / (opened.key + PLAIN), header)
        try:
            new = [one for one in (directory, self._directory) if not one.is_dir()]
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
            _set_aside(directory, opened.key)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._keep(trial, os.open(trial.path, flags, 0o600))
            self._trials.add(trial)
            self._unnamed[trial] = [directory, *(one.parent for one in new)]
            trial._append(header + trial._frame(opened))
        except OSError as error:
            if self._files.get(trial) is not None:
                with contextlib.suppress(OSError):
                    trial.path.unlink()
            self._forget(trial)
            raise CaptureWriteError(f"{trial.path}: cannot be written ({_why(error)})") from error
        return trial

    async def sync(self) -> None:
        """Everything so far to the disk. Raises CaptureError, which names the directory and the remedy."""
        await asyncio.gather(*self._sealing, return_exceptions=True)  # which raise where they are waited for
        done = await asyncio.gather(*(trial.durable() for trial in self._trials), return_exceptions=True)
        failed = [one for one in done if isinstance(one, BaseException)]
        if failed:
            cause = next((trial._failed for trial in self._trials if trial._failed is not None), None)
            raise CaptureError(
                f"{self._directory}: captured calls cannot be put on the disk "
                f"({_why(cause) if cause is not None else failed[0]}); make room, then resume the run"
            ) from failed[0]

    async def close(self) -> None:
        """Sync and close the files; those that are not sealed stay as they are. Raises CaptureError."""
        try:
            await self.sync()
        finally:
            for trial in list(self._trials):
                self._forget(trial)
            self._flushers.shutdown(wait=False)
            self._packers.shutdown(wait=False)

    # --- descriptors ---

    def _descriptor(self, trial: TrialJournal) -> int:
        fd = self._files.get(trial)
        if fd is None:
            fd = os.open(trial.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._keep(trial, fd)
        else:
            self._files.move_to_end(trial)
        return fd

    def _keep(self, trial: TrialJournal, fd: int) -> None:
        self._files[trial] = fd
        for other in list(self._files) if len(self._files) > self._files_open else ():
            if len(self._files) <= self._files_open:
                break
            if other not in self._pinned and other._sealing is None and other is not trial:
                # What a closed file's pages meet on their way to the disk, the next one to open it is told.
                os.close(self._files.pop(other))

    def _forget(self, trial: TrialJournal) -> None:
        self._trials.discard(trial)
        self._unnamed.pop(trial, None)
        if trial not in self._pinned and (fd := self._files.pop(trial, None)) is not None:
            os.close(fd)

    # --- flushing ---

    async def _flush(self, trial: TrialJournal) -> OSError | None:
        """Until a flush that begins now or later has ended; why it failed, None when it did not."""
        future = self._waiting.get(trial)
        if future is None:
            future = self._waiting[trial] = asyncio.get_running_loop().create_future()
            if self._flushing is None:
                self._flushing = asyncio.create_task(self._flush_all())
        return await asyncio.shield(future)

    async def _flush_all(self) -> None:
        try:
            await asyncio.sleep(0)  # those who write in this turn of the loop come along
            while self._waiting:
                batch = {trial: self._waiting.pop(trial) for trial in list(self._waiting)[:FLUSHES_AT_ONCE]}
                failed: dict[TrialJournal, OSError] = {}
                try:
                    await self._flush_batch(list(batch), failed)
                finally:
                    for trial, future in batch.items():
                        if not future.done():
                            future.set_result(failed.get(trial))
        finally:
            self._flushing = None

    async def _flush_batch(self, trials: list[TrialJournal], failed: dict[TrialJournal, OSError]) -> None:
        """Flush files side by side, so that the file system can make one commit of them."""
        loop = asyncio.get_running_loop()
        sizes: dict[TrialJournal, int] = {}
        files: list[tuple[TrialJournal, int]] = []
        for trial in trials:
            if trial._durable >= trial.size:
                continue
            try:
                files.append((trial, self._descriptor(trial)))
            except OSError as error:
                failed[trial] = error
                continue
            self._pinned.add(trial)
            sizes[trial] = trial.size
        parts = min(_FLUSHERS, (len(files) + 3) // 4)
        lost: dict[TrialJournal, OSError] = {}
        try:
            for part in await asyncio.gather(
                *(loop.run_in_executor(self._flushers, _sync_files, files[part::parts]) for part in range(parts))
            ):
                lost.update(part)
            names = list({one: None for trial in sizes for one in self._unnamed.get(trial, ())})
            if names:
                try:
                    await loop.run_in_executor(self._flushers, sync_dirs, names)
                except OSError as error:
                    lost |= dict.fromkeys([trial for trial in sizes if trial in self._unnamed], error)
        finally:
            self._pinned.difference_update(sizes)
        for trial, size in sizes.items():
            if trial in lost:
                # Pages that could not be written count as written from now on: nothing can be known of them.
                failed[trial] = trial._failed = lost[trial]
            else:
                trial._durable = max(trial._durable, size)
                self._unnamed.pop(trial, None)
            if trial not in self._trials:
                self._forget(trial)


def _sync_files(files: list[tuple[TrialJournal, int]]) -> list[tuple[TrialJournal, OSError]]:
    failed = []
    for trial, fd in files:
        try:
            os.fdatasync(fd)
        except OSError as error:
            failed.append((trial, error))
    return failed


def _set_aside(directory: Path, key: str) -> None:
    """Give the files that a try left before a name of their own. Raises OSError."""
    plain, sealed = directory / (key + PLAIN), directory / (key + SEALED)
    sealed.with_name(sealed.name + ".tmp").unlink(missing_ok=True)
    if not os.path.lexists(plain) and not os.path.lexists(sealed):
        return
    number = 1
    while any(map(os.path.lexists, earlier_files(plain, number))):
        number += 1
    for path, aside in zip((plain, sealed), earlier_files(plain, number), strict=True):
        if os.path.lexists(path):
            path.rename(aside)


def _readable(value: object) -> object:
    """The same without lone surrogates, which no encoding can carry."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_readable(one) for one in value]
    if isinstance(value, dict):
        return {_readable(name): _readable(one) for name, one in value.items()}
    return value


def _why(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
