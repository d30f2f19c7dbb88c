"""Where sandboxes run: real bubblewrap with and without namespaces, a daemon's socket, E2B's protocol on a real one."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from e2b_server.faults import Fault
from e2b_server.server import E2BServer

from console.doctor import checks_sandboxes as checks
from console.doctor.case import Case, Host

KEY = "e2b_0123456789abcdef0123456789abcdef01234567"
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def one(check, env: dict[str, str], **facts):
    (made,) = check(Case(host=Host(root=facts.pop("root", Path("/")), env=env), **facts))
    return made


@pytest.fixture
def run(tmp_path: Path):
    """Options of a run whose trial file is this one."""
    from console.training.options import parse

    def make(trial: str):
        words = [f"config.dataset_builder.tasks_dir={tmp_path}", f"config.log_path={tmp_path}/r", "config.model_name=m"]
        words += [
            "config.learning_rate=1e-5",
            "config.max_tokens=9",
            f"harbor.trial_config={CONFIGS}/trials/{trial}.json",
        ]
        return parse(words)

    return make


def test_bubblewrap_works_here() -> None:
    assert one(checks.bubblewrap, {}).level == "ok"


def test_bubblewrap_where_no_namespaces_are_left(doctor) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    inside = ("unshare", "--user", "--map-root-user", "sh", "-c", script, "sh")
    code, told = doctor("--only", "sandbox.bubblewrap", "--only", "host.userns", before=inside)
    assert (code, told["sandbox.bubblewrap"]["level"]) == (0, "warning") and told["sandbox.bubblewrap"]["remedy"]
    assert told["host.userns"]["level"] == "warning" and "max_user_namespaces" in told["host.userns"]["remedy"]
    code, told = doctor(
        str(CONFIGS / "demo.toml"), "config.log_path=run", "--only", "sandbox.bubblewrap", before=inside
    )
    assert (code, told["sandbox.bubblewrap"]["level"]) == (2, "error"), "these options need it"


def test_other_sandboxes_than_the_ones_that_are_asked_for(run) -> None:
    e2b, bwrap = run("mini-swe-agent-e2b"), run("terminal-bwrap")
    assert one(checks.bubblewrap, {}, options=e2b).found == "the trial file asks for e2b"
    assert one(checks.docker, {}, options=e2b).level == "skipped"
    assert one(checks.e2b_key, {}, options=bwrap).found == "the trial file asks for bubblewrap"
    assert one(checks.e2b, {"E2B_API_KEY": KEY}, options=bwrap, live=True).level == "skipped"


@contextmanager
def daemon(path: Path, status: int) -> Iterator[None]:
    """Answers `_ping` on a unix socket, as a Docker daemon does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/_ping" else 404)
            self.end_headers()

        def address_string(self) -> str:
            return "unix"

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingUnixStreamServer(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


@pytest.fixture
def docker(tmp_path: Path) -> dict[str, str]:
    """Variables under which there are a docker command with its plugin, and a socket's path."""
    for name in ("bin/docker", "config/cli-plugins/docker-compose"):
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    address = f"unix://{tmp_path}/d.sock"
    return {"PATH": str(tmp_path / "bin"), "DOCKER_CONFIG": str(tmp_path / "config"), "DOCKER_HOST": address}


def test_a_daemon_that_answers(docker: dict[str, str], tmp_path: Path) -> None:
    with daemon(tmp_path / "d.sock", 200):
        assert one(checks.docker, docker, root=tmp_path).level == "ok"
    (tmp_path / "d.sock").unlink()
    with daemon(tmp_path / "d.sock", 503):
        assert "HTTP 503" in one(checks.docker, docker, root=tmp_path).found


def test_a_daemon_that_is_not_there_or_says_nothing(docker: dict[str, str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(checks, "ASK_SECONDS", 0.2)
    assert "does not answer" in one(checks.docker, docker, root=tmp_path).found
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "d.sock"))
        assert "does not answer" in one(checks.docker, docker, root=tmp_path).found, "nobody listens any more"
        silent.listen(1)
        assert "does not answer" in one(checks.docker, docker, root=tmp_path).found, "nobody answers"


def test_a_docker_that_is_half_there(docker: dict[str, str], tmp_path: Path) -> None:
    os.remove(tmp_path / "config/cli-plugins/docker-compose")
    assert "compose" in one(checks.docker, docker, root=tmp_path).found
    os.remove(tmp_path / "bin/docker")
    assert one(checks.docker, docker, root=tmp_path).found == "there is no docker command"
    assert one(checks.docker, {"PATH": str(tmp_path / "bin")}, root=tmp_path).level == "skipped", "nobody asks for it"


def test_a_daemon_elsewhere_is_asked_only_when_it_may_be(docker: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = docker | {"DOCKER_HOST": f"tcp://127.0.0.1:{listener.getsockname()[1]}"}
        assert one(checks.docker, far, root=tmp_path).level == "skipped"
        listener.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listener.accept()
    assert "does not answer" in one(checks.docker, far, root=tmp_path, live=True).found


@pytest.mark.parametrize(
    ("env", "alone", "asked"),
    [
        ({}, "note", "error"),
        ({"E2B_API_KEY": KEY}, "ok", "ok"),
        ({"E2B_API_KEY": "sk-something"}, "warning", "warning"),
        ({"E2B_API_KEY": "sk-something", "E2B_API_URL": "http://127.0.0.1:1"}, "ok", "ok"),
        ({"E2B_API_KEY": KEY, "E2B_DEBUG": "true"}, "error", "error"),
    ],
)
def test_keys_of_e2b(run, env: dict[str, str], alone: str, asked: str) -> None:
    made = [one(checks.e2b_key, env), one(checks.e2b_key, env, options=run("mini-swe-agent-e2b"))]
    assert [check.level for check in made] == [alone, asked]
    assert all(env.get("E2B_API_KEY", "?") not in check.found for check in made)


def test_e2b_is_asked_what_runs_there(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with E2BServer(tmp_path / "e2b") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        env = dict(os.environ)
        assert one(checks.e2b, env).found == "only --live asks it"
        assert one(checks.e2b, env, live=True).found == "0 sandboxes run on the account"
        made = one(checks.e2b, env, live=True, options=run("mini-swe-agent-e2b"))
        assert made.level == "ok" and "this run adds up to" in made.found
        refused = one(checks.e2b, env | {"E2B_API_KEY": KEY.replace("0", "f")}, live=True)
        assert (refused.level, refused.found) == ("error", "the key is refused")
        monkeypatch.setattr(checks, "E2B_SECONDS", 0.5)
        server.faults.add(Fault(at="list", do="hang"))
        assert "no answer within" in (made := one(checks.e2b, env, live=True)).found or "cannot be asked" in made.found
        assert made.level == "error" and env["E2B_API_KEY"] not in made.found
    monkeypatch.delenv("E2B_API_KEY")
    assert one(checks.e2b, {}, live=True).found == "E2B_API_KEY is not set"
