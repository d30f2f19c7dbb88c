"""Commands of `quarterdeck bench` in a process that may take little memory, as a user whom permissions bind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harbor_jobs import HarborJob

MEGABYTES = 300
_RUNNER = """
import contextlib, encodings.unicode_escape, io, json, os, resource, sys
asked = json.load(sys.stdin)
from console.cli import run

def answer(argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(["bench", *argv])
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
    return code, out.getvalue(), err.getvalue()

# What a command loads of libraries is its start; what it takes from there on is the input's doing. And the user whom it
# becomes may not be allowed to read the libraries.
for argv in asked["first"]:
    code, _, said = answer(argv)
    assert code == 0, said
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + (asked["megabytes"] << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
json.dump([answer(argv) for argv in asked["then"]], sys.stdout)
"""


class Answer(NamedTuple):
    """What a command line of `bench` gave: its exit code, or the exception that ended it, and what it wrote."""

    code: int | str
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        """Lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    def check(self) -> None:
        """It answered, and nothing of it can do anything to a terminal."""
        assert self.code == 0, self
        assert [char for char in self.out + self.err if not char.isprintable() and char != "\n"] == []


type Bounded = Callable[..., list[Answer]]


@pytest.fixture(scope="module")
def open_dir() -> Iterator[Path]:
    """A directory that every user may enter, other than pytest's; what it holds may be closed."""
    with tempfile.TemporaryDirectory(prefix="quarterdeck-hostile-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
        subprocess.run(["chmod", "-R", "u+rwX", name], check=True)


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bounded]:
    """Runs command lines of `bench`, one after another, within 300 MB of address space over what a process takes that
    has answered for a small healthy job. They are of one user, who is not root."""
    healthy = tmp_path_factory.mktemp("healthy")
    for name in ("a", "b"):
        job = HarborJob(healthy / name)
        for at in range(6):
            job.trial(f"org/{at}", float(at % 2), files={"verifier/test-stdout.txt": "== 3 passed in 0.1s ==\n"})
        job.write()
    forms = ([], ["--json"], ["--csv"], ["--markdown"])
    first = [["triage", str(healthy), "--no-cache", *more] for more in forms]
    first += [["tally", str(healthy), "--no-cache"], ["compare", f"{healthy}/a", f"{healthy}/b", "--no-cache"]]
    with tempfile.TemporaryDirectory(prefix="quarterdeck-cache-") as cache:
        os.chmod(cache, 0o777)

        def call(*lines: Sequence[object], megabytes: int = MEGABYTES) -> list[Answer]:
            done = subprocess.run(
                [sys.executable, "-c", _RUNNER],
                input=json.dumps(
                    {"first": first, "then": [[str(part) for part in line] for line in lines], "megabytes": megabytes}
                ),
                capture_output=True,
                text=True,
                timeout=150,
                cwd=Path(__file__).parents[3],
                env=os.environ | {"QUARTERDECK_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": "1"},
            )
            assert done.returncode == 0, done.stderr
            return [Answer(*one) for one in json.loads(done.stdout)]

        yield call
