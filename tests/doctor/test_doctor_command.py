"""The command: what it prints, its exit codes, and that it starts nothing and asks nobody."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from console.cli import run as quarterdeck
from console.doctor.case import Case, Host, this_host
from console.doctor.examination import PARTS, QUESTIONS, Part, examine
from console.doctor.report import Check, Question, as_json, as_text, exit_code
from console.errors import UsageError

DEMO = str(Path(__file__).resolve().parents[2] / "configs" / "demo.toml")
Q = Question("host.test", "it matters")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def test_this_machine_can_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    code = quarterdeck(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["ok", "checks"] and told["ok"] == (code == 0)
    assert all(list(check) == ["code", "level", "found", "why", "remedy"] for check in told["checks"])
    assert {question.code for question in QUESTIONS} <= {check["code"] for check in told["checks"]}
    for check in told["checks"]:
        assert check["found"] and check["why"], check
        assert "failed, which is a bug" not in check["found"], check
        assert check["remedy"] or check["level"] in ("ok", "note", "skipped"), check


def test_a_part_of_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert quarterdeck(["doctor", "--only", "term.size", "--only", "python", "--json"]) == 0
    assert [check["code"] for check in json.loads(capsys.readouterr().out)["checks"]] == ["term.size", "python.version"]
    assert quarterdeck(["doctor", "--only", "nothing"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "there are host, ssh, term" in said.err and len(said.err.splitlines()) == 1


def test_checks_that_are_not_asked_for_are_not_made() -> None:
    looked: list[str] = []

    class Watched(Host):
        def read(self, path: str) -> str | None:
            looked.append(path)
            return super().read(path)

    examine(Case(host=Watched()), ("env.ci",))
    assert looked == []
    examine(Case(host=Watched()), ("host.memory",))
    assert looked


def test_options_that_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["doctor", DEMO, "--only", "option", "--json", f"config.log_path={tmp_path}/run"]
    assert quarterdeck(words) == 0
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert (check["code"], check["level"]) == ("option.preflight", "ok")
    assert not (tmp_path / "run").exists() and not (tmp_path / "state").exists(), "nothing was made"


def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [DEMO, f"config.log_path={tmp_path}/run", "config.max_tokens=many", "config.lora_rank=0", "config.no=1"]
    assert quarterdeck(["doctor", *words, "--only", "option"]) == 2
    out = capsys.readouterr().out
    for object_ in ("config.max_tokens", "config.lora_rank", "config.no"):
        assert f"{object_}: " in out
    assert out.splitlines()[-1].split() == ["error", "option.value,", "option.range"]
    words = [DEMO, f"config.log_path={tmp_path}/run", "harbor.advertised_url=http://h:1", "harbor.listen_port=many"]
    quarterdeck(["doctor", *words, "--only", "option", "--only", "capture", "--json"])
    told = [check for check in json.loads(capsys.readouterr().out)["checks"] if "listen_port" in check["found"]]
    assert [check["code"] for check in told] == ["option.value"], "nothing is said of the default in its place"
    assert quarterdeck(["doctor", "nonsense"]) == 2 and "neither key=value nor a TOML file" in capsys.readouterr().err


@pytest.mark.parametrize("live", [False, True])
def test_the_gateway_of_the_options_is_asked_only_when_it_may_be(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, live: bool
) -> None:
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                asked.set()
                connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        words = [DEMO, "console.gateway=none", f"config.log_path={tmp_path}/run", "--only", "gateway.answers", "--json"]
        words.append(f"config.base_url=http://127.0.0.1:{listener.getsockname()[1]}")
        code = quarterdeck(["doctor", *words, *(["--live"] if live else [])])
        thread.join()
    told = {check["code"]: check["level"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert asked.is_set() == live
    assert (code, told["gateway.answers"]) == ((2, "error") if live else (0, "skipped"))


def test_a_check_that_fails_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case):
        yield Q.ok("the first half")
        raise ValueError("oh")

    def unreadable(case: Case):
        raise PermissionError(13, "Permission denied", "/x")

    parts = (Part(broken, (Q,)), Part(unreadable, (Q,)), PARTS[0])
    monkeypatch.setattr("console.doctor.examination.PARTS", parts)
    made = examine(Case(host=this_host()))
    assert [check.level for check in made] == ["ok", "skipped", "skipped", "ok"]
    assert made[1].found.endswith("ValueError: oh") and made[2].found == "cannot be looked at: Permission denied (/x)"


def test_exit_codes() -> None:
    assert exit_code([]) == exit_code([Q.ok("x"), Q.note("x"), Q.warning("x", "y"), Q.skipped("x")]) == 0
    assert exit_code([Q.ok("x"), Q.error("x", "y")]) == 2


def test_what_is_as_it_should_be_takes_one_line() -> None:
    text = as_text([Q.ok("fine"), Q.skipped("not now"), Q.warning("bad", "do this"), Q.error("worse", "do that")], 80)
    assert text == (
        "ok       host.test              fine\n"
        "skipped  host.test              not now\n"
        "warning  host.test              bad\n"
        "         why: it matters\n"
        "         do:  do this\n"
        "error    host.test              worse\n"
        "         why: it matters\n"
        "         do:  do that\n"
        "\n"
        "1 ok, 1 warning, 1 error, 1 skipped\n"
        "error    host.test\n"
        "warning  host.test"
    )


def test_whatever_things_are_called_it_is_harmless_and_fits() -> None:
    evil = "a\x1b]0;title\x07b\nc \x9b31m " + "word " * 400
    text = as_text([Check(code=f"x.{evil[:9]}", level="error", found=evil, why=evil, remedy=evil)], 72)
    assert "\x1b" not in text and "\x9b" not in text and "\x07" not in text
    assert max(map(len, text.splitlines())) <= 72 and len(text) < 6000
    assert json.loads(as_json([Q.error(evil, "")]))["checks"][0]["found"] == evil, "JSON escapes by itself"


def test_codes_are_told_apart() -> None:
    codes = [question.code for question in QUESTIONS]
    assert len(set(codes)) == len(codes)
    with pytest.raises(UsageError):
        examine(Case(host=Host()), ("x.",))


NO_TRAFFIC = """
    import sys

    def hook(event, args):
        if event == "socket.getaddrinfo" or (event == "socket.connect" and isinstance(args[1], tuple)):
            sys.stderr.write(f"ASKED {args[0] if event == 'socket.getaddrinfo' else args[1]}\\n")

    sys.addaudithook(hook)
    from console.cli import main
    main(sys.argv[1:])
"""


SOME = ("--only", "sandbox.e2b", "--only", "sandbox.e2b_key", "--only", "sandbox.docker", "--only", "gateway.answers")


@pytest.mark.parametrize(("trial", "only"), [("terminal-bwrap", ()), ("mini-swe-agent-e2b", SOME)])
def test_nobody_is_asked_without_live(tmp_path: Path, trial: str, only: tuple[str, ...]) -> None:
    configs = Path(DEMO).parent
    words = [
        DEMO,
        "console.gateway=none",
        "config.base_url=http://gateway.invalid:1",
        f"config.log_path={tmp_path}/run",
    ]
    words += [f"harbor.trial_config={configs}/trials/{trial}.json", "harbor.advertised_host=proxy.invalid"]
    env = {
        "E2B_API_KEY": f"e2b_{'0' * 40}",
        "TINKER_BASE_URL": "http://other.invalid",
        "DOCKER_HOST": "tcp://d.invalid:1",
    }
    program = [sys.executable, "-c", textwrap.dedent(NO_TRAFFIC), "doctor", *words, *only, "--json"]
    path = {"PYTHONPATH": str(configs.parent)}
    done = subprocess.run(program, env=os.environ | env | path, capture_output=True, text=True, timeout=120)
    assert len(json.loads(done.stdout)["checks"]) >= (len(only) // 2 or len(QUESTIONS) - 1), done.stderr
    asked = [line for line in done.stderr.splitlines() if line.startswith("ASKED")]
    # Whether the capture gateway can listen at its address is tried by binding there, which looks the address up.
    assert all(line in ("ASKED 127.0.0.1", "ASKED 0.0.0.0") for line in asked), asked
