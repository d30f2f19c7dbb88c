"""What is refused of the capture gateway's options before anything is started."""

from __future__ import annotations

import errno
import json
import socket
from pathlib import Path

import pytest
from certificates import make_certificate

from console.capture import listener
from console.commands import start, train
from console.errors import UsageError
from console.findings import WARNING, Finding, errors
from console.training.harbor_options import HarborOptions
from console.training.options import RunOptions, parse
from console.training.preflight import preflight
from console.training.preflight_capture import preflight_listening

ENV = {"TINKER_API_KEY": "tml-secret", "E2B_API_KEY": "e2b-secret"}
AGENT = {"name": "x", "env": {"OPENAI_BASE_URL": "{proxy_url}/v1", "OPENAI_API_KEY": "{proxy_api_key}"}}
LOCAL = {"environment": {"import_path": "console.trials.bwrap:BwrapEnvironment"}, "agent": AGENT}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    task = tmp_path / "tasks" / "one"
    task.mkdir(parents=True)
    (task / "task.toml").write_text("")
    (tmp_path / "trial.json").write_text(json.dumps(LOCAL))
    return [
        "config.base_url=http://gateway:10613", "config.model_name=Qwen/Qwen3.6-35B-A3B", "config.learning_rate=1e-6",
        "config.max_tokens=8192", "config.loss_fn=ppo", "config.ttl_seconds=None", f"config.log_path={tmp_path}/run",
        f"config.dataset_builder.tasks_dir={tmp_path}/tasks", f"harbor.trial_config={tmp_path}/trial.json",
    ]  # fmt: skip


def found(words: list[str], *more: str, env: dict[str, str] | None = None) -> list[Finding]:
    findings = preflight(parse([*words, *more]), ENV | (env or {}))
    assert all("\n" not in finding.line() and finding.remedy for finding in findings)
    return findings


def codes(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.code, finding.object) for finding in findings]


def test_defaults_ask_for_nothing(words: list[str]) -> None:
    assert found(words) == []
    harbor = parse(words).harbor
    assert (harbor.listen_port, harbor.advertised_url, harbor.allow_insecure) == (0, None, False)
    assert (harbor.sampling, harbor.history_thinking, harbor.train) == ("agent", "keep", "all")
    budgets = (harbor.max_calls, harbor.max_prompt_tokens, harbor.max_sampled_tokens, harbor.max_call_bytes)
    assert budgets == (None,) * 4 and harbor.max_inflight_calls == 8


def test_options_reach_the_engine(words: list[str], tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    given = {
        "listen_port": 8443, "advertised_url": "https://gw.example/q/", "tls_certificate": certificate, "tls_key": key,
        "allow_insecure": True, "sampling": "force", "history_thinking": "template", "train": "main", "max_calls": 40,
        "max_prompt_tokens": 1000, "max_sampled_tokens": 100, "max_call_bytes": 1 << 20, "max_inflight_calls": 2,
    }  # fmt: skip
    options = parse([*words, *(f"harbor.{name}={value!s}" for name, value in given.items())])
    assert {name: getattr(options.harbor, name) for name in given} == given
    assert RunOptions.from_json(options.to_json()) == options
    assert preflight(options, ENV) == []
    assert options.overrides()["harbor.tls_key"] == key, "the file's name is no secret"
    assert set(given) < set(HarborOptions.__struct_fields__)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]", "LOCALHOST"])
def test_this_machine_needs_no_tls(words: list[str], host: str) -> None:
    assert found(words, f"harbor.listen_host={host}") == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gateway.example", "1270.0.0.1", "localhost.example"])
def test_other_machines_need_tls_or_a_word(words: list[str], host: str, tmp_path: Path) -> None:
    listen = f"harbor.listen_host={host}"
    (finding,) = errors(found(words, listen))
    assert finding.code == "capture.insecure" and finding.object == listen
    for part in (
        "harbor.tls_certificate",
        "harbor.tls_key",
        "harbor.allow_insecure=true",
        "QUARTERDECK_ALLOW_INSECURE=1",
    ):
        assert part in finding.remedy
    assert found(words, listen, "harbor.allow_insecure=true") == []
    assert found(words, listen, env={"QUARTERDECK_ALLOW_INSECURE": "1"}) == []
    assert codes(found(words, listen, env={"QUARTERDECK_ALLOW_INSECURE": "0"})) == [("capture.insecure", listen)]
    certificate, key = make_certificate(tmp_path)
    assert found(words, listen, f"harbor.tls_certificate={certificate}", f"harbor.tls_key={key}") == []


def test_a_certificate_and_its_key(words: list[str], tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    other, other_key = make_certificate(tmp_path, "other")
    locked, locked_key = make_certificate(tmp_path, "locked", password=b"secret")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nothing")

    def told(certificate: str | None, key: str | None) -> tuple[str, str]:
        given = {"tls_certificate": certificate, "tls_key": key}
        (finding,) = found(words, *(f"harbor.{name}={value}" for name, value in given.items() if value is not None))
        assert finding.code == "capture.tls"
        return finding.object, finding.message

    assert told(certificate, None)[0] == "harbor.tls_key"
    assert told(None, key)[0] == "harbor.tls_certificate"
    assert told(certificate, other_key) == (f"harbor.tls_key={other_key}", f"is not the key of {certificate}")
    assert told(locked, locked_key) == (f"harbor.tls_key={locked_key}", "is encrypted")
    assert told(str(nonsense), key)[0] == f"harbor.tls_certificate={nonsense}"
    assert told(certificate, str(nonsense)) == (f"harbor.tls_key={nonsense}", "holds no private key")
    assert told(certificate, f"{tmp_path}/none.key")[1] == "No such file or directory"
    assert told(str(tmp_path), key)[1] == "Is a directory"
    assert found(words, f"harbor.tls_certificate={other}", f"harbor.tls_key={other_key}") == []


@pytest.mark.parametrize(
    ("word", "code", "where"),
    [
        ("harbor.listen_port=-1", "capture.port", "harbor.listen_port"),
        ("harbor.listen_port=65536", "capture.port", "harbor.listen_port"),
        ("harbor.advertised_host=192.0.2.1:8080", "capture.advertised", "harbor.advertised_host"),
        ("harbor.advertised_host=http://192.0.2.1", "capture.advertised", "harbor.advertised_host"),
        ("harbor.advertised_host=host/path", "capture.advertised", "harbor.advertised_host"),
        ("harbor.max_calls=0", "option.range", "harbor.max_calls"),
        ("harbor.max_prompt_tokens=-5", "option.range", "harbor.max_prompt_tokens"),
        ("harbor.max_sampled_tokens=0", "option.range", "harbor.max_sampled_tokens"),
        ("harbor.max_call_bytes=0", "option.range", "harbor.max_call_bytes"),
        ("harbor.max_inflight_calls=0", "option.range", "harbor.max_inflight_calls"),
    ],
)
def test_each_value_that_does_not_fit_has_its_line(words: list[str], word: str, code: str, where: str) -> None:
    assert codes(found(words, word)) == [(code, where)]


@pytest.mark.parametrize("host", ["gateway.example", "192.0.2.1", "2001:db8::1", "[2001:db8::1]", "my_host"])
def test_hosts_that_can_be_advertised(words: list[str], host: str) -> None:
    assert found(words, f"harbor.advertised_host={host}") == []


@pytest.mark.parametrize(
    "word",
    [
        "harbor.sampling=greedy", "harbor.history_thinking=drop", "harbor.train=some", "harbor.max_calls=many",
        "harbor.max_inflight_calls=None", "harbor.allow_insecure=perhaps", "harbor.listen_port=http",
        "harbor.advertised_url=gateway.example", "harbor.advertised_url=ftp://gateway.example", "harbor.tls_key=",
    ],
)  # fmt: skip
def test_values_of_a_wrong_type(words: list[str], word: str) -> None:
    with pytest.raises(UsageError, match=word.partition("=")[0]) as caught:
        parse([*words, word])
    assert "\n" not in str(caught.value)


def test_a_whole_address(words: list[str]) -> None:
    url, port = "harbor.advertised_url=https://gw.example/path", "harbor.listen_port=8080"
    assert found(words, url, port) == []
    (any_port,) = found(words, url)
    assert (any_port.code, any_port.level, any_port.object) == ("capture.any_port", WARNING, "harbor.listen_port")
    both = found(words, url, port, "harbor.advertised_host=127.0.0.1")
    assert codes(both) == [("capture.advertised", "harbor.advertised_url")]
    for bad in ("https://user:pw@gw.example", "https://gw.example/?token=x", "https://gw.example/#x"):
        (finding,) = found(words, f"harbor.advertised_url={bad}", port)
        assert finding.code == "capture.advertised" and bad not in finding.line() and "pw" not in finding.line()


def test_plain_http_before_a_gateway_with_tls(words: list[str], tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = (f"harbor.tls_certificate={certificate}", f"harbor.tls_key={key}", "harbor.listen_port=8443")
    (finding,) = found(words, *tls, "harbor.advertised_url=http://gw.example")
    assert (finding.level, finding.object) == (WARNING, "harbor.advertised_url")
    assert found(words, *tls, "harbor.advertised_url=https://gw.example") == []


def test_remote_sandboxes_must_reach_the_whole_address(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "trial.json").write_text(json.dumps(LOCAL | {"environment": {"type": "e2b"}}))
    port = "harbor.listen_port=8080"

    def reach(*more: str) -> list[Finding]:
        return [finding for finding in found(words, port, *more) if finding.code.startswith("trial.")]

    (finding,) = reach("harbor.advertised_url=http://127.0.0.1:8080")
    assert (finding.code, finding.object) == ("trial.unreachable", "harbor.advertised_url")
    # A tunnel reaches this machine by its loopback address.
    assert reach("harbor.advertised_url=https://gw.example") == []
    assert [f.code for f in reach("harbor.advertised_host=192.0.2.1")] == ["trial.unreachable"]
    (tmp_path / "trial.json").write_text(json.dumps(LOCAL | {"environment": {"type": "docker"}}))
    (finding,) = found(words, port, "harbor.advertised_url=http://127.0.0.1:8080")
    assert (finding.code, finding.level, finding.object) == (
        "trial.container_loopback", WARNING, "harbor.advertised_url",
    )  # fmt: skip


# --- the address ---


async def listening(words: list[str], *more: str) -> list[str]:
    return [f"{found.code} {found.line()}" for found in await preflight_listening(parse([*words, *more]))]


async def refusal(host: str, port: int) -> str:
    """What the capture gateway says of it when it starts."""
    server = listener.Listener(None, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as caught:
        await server.start(host, port, None)
    return f"capture.listen {caught.value}"


async def test_a_port_in_use_is_found_and_a_free_one_is_left_free(words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = await listening(words, f"harbor.listen_port={port}")
        assert told == [await refusal("127.0.0.1", port)] and "is in use at 127.0.0.1; choose another" in told[0]
    for _ in range(2):
        assert await listening(words, f"harbor.listen_port={port}") == []
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
        free.listen()
    assert await listening(words) == []


@pytest.mark.parametrize("host", ["203.0.113.9", "no-such-host.invalid", "2001:db8::1"])
async def test_an_address_of_another_machine_is_found(words: list[str], host: str) -> None:
    told = await listening(words, f"harbor.listen_host={host}")
    assert told == [await refusal(host, 0)] and "cannot listen there" in told[0]


async def test_a_privileged_port_is_found(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")  # as for everybody but the superuser

    monkeypatch.setattr(listener, "_listening", forbidden)
    assert await listening(words, "harbor.listen_port=80") == [await refusal("127.0.0.1", 80)]


@pytest.mark.parametrize("word", ["harbor.listen_port=70000", "harbor.listen_port=-1", "harbor.listen_host= "])
async def test_what_is_refused_anyway_is_not_tried(words: list[str], word: str) -> None:
    assert await listening(words, word) == [] and errors(found(words, word))


def test_train_finds_it_before_anything_is_started(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(start, "_renderer_findings", lambda options: [])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = [*words, f"harbor.listen_port={port}"]
        assert train.train_main(["--check", "--json", *words, "config.max_steps=0"]) == 2
        findings = json.loads(capsys.readouterr().out)["findings"]
        assert f"harbor.listen_port={port}" in {one["object"] for one in findings}
        monkeypatch.setattr(start, "preflight_findings", lambda options, env, *, whole: preflight(options, env))
        with pytest.raises(UsageError, match=f"harbor.listen_port={port}: is in use"):
            train.train_main(["--plain", *words])
        assert not (tmp_path / "run").exists()
