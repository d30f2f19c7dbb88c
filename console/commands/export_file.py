"""Where `quarterdeck export` writes: standard output, or a file that is there whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from console.errors import UsageError


@contextmanager
def file_or_stdout(target: Path | None, force: bool) -> Iterator[IO[str]]:
    """Standard output, or a file that is there whole or not at all."""
    if target is None:
        try:
            yield sys.stdout
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains when it flushes at exit
            raise UsageError(f"standard output: cannot be written ({error.strerror or error})") from error
        return
    if target.is_dir():
        raise UsageError(f"-o {target}: a directory; name a file")
    if target.exists() and not target.is_file():  # a device, a pipe
        try:
            with target.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
                yield stream
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UsageError(f"-o {target}: cannot be written ({error.strerror or error})") from error
        return
    if not force and target.exists():
        raise UsageError(f"-o {target}: there already; --force overwrites it")
    try:
        fd, name = tempfile.mkstemp(prefix=f".{target.name[:80]}.", dir=target.parent)
    except OSError as error:
        raise UsageError(f"-o {target}: cannot be written ({error.strerror})") from error
    try:
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        _put_in_place(name, target, force)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise UsageError(f"-o {target}: cannot be written ({error.strerror or error})") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _put_in_place(name: str, target: Path, force: bool) -> None:
    if force:
        os.replace(name, target)
        return
    try:
        os.link(name, target)  # fails where somebody made it meanwhile
    except FileExistsError:
        raise UsageError(f"-o {target}: there already; --force overwrites it") from None
    except OSError:
        os.replace(name, target)  # a file system without hard links
        return
    os.unlink(name)
