"""Variables of the environment. No value of a key is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.doctor import checks_environment as checks
from console.doctor.case import Case
from console.training.options import RunOptions, parse

SECRET = "very-secret-and-long"


@pytest.fixture
def options(tmp_path: Path):
    def make(*words: str) -> RunOptions:
        given = [f"config.dataset_builder.tasks_dir={tmp_path}", f"config.log_path={tmp_path}/r", "config.model_name=m"]
        given += [f"harbor.trial_config={tmp_path}/t.json", "config.learning_rate=1e-5", "config.max_tokens=100"]
        return parse([*given, *words])

    return make


@pytest.mark.parametrize(
    ("key", "alone", "with_options"),
    [
        (None, "note", "error"),
        ("  ", "note", "error"),
        (f"tml-{SECRET}", "ok", "ok"),
        (f"eyJ{SECRET}", "ok", "ok"),
        (f"sk-{SECRET}", "error", "error"),
        (f"tml-{SECRET}\n", "error", "error"),
    ],
)
def test_keys_of_the_gateway(host, options, key: str | None, alone: str, with_options: str) -> None:
    env = {} if key is None else {"TINKER_API_KEY": key}
    made = [
        *checks.tinker_key(Case(host=host(env=env))),
        *checks.tinker_key(Case(host=host(env=env), options=options())),
    ]
    assert [check.level for check in made] == [alone, with_options]
    embedded = checks.tinker_key(Case(host=host(env=env), options=options("console.gateway=embedded")))
    assert [check.level for check in embedded] == ["ok"]
    assert all(SECRET not in f"{check.found}{check.remedy}" for check in made)


def test_a_gateway_that_a_variable_names(host, options) -> None:
    def told(env: dict[str, str], *words: str, with_options: bool = True) -> str:
        case = Case(host=host(env=env), options=options(*words) if with_options else None)
        (check,) = checks.tinker_url(case)
        assert SECRET not in check.found
        return check.level

    elsewhere = {"TINKER_BASE_URL": f"https://user:{SECRET}@gateway:10613/x"}
    assert told({}) == "ok" and told(elsewhere) == "note" and told(elsewhere, with_options=False) == "note"
    assert (
        told(elsewhere, "config.base_url=http://other") == "ok" and told(elsewhere, "console.gateway=embedded") == "ok"
    )


PROXY = {"HTTP_PROXY": f"http://user:{SECRET}@proxy.lan:3128"}


@pytest.mark.parametrize(
    ("env", "words", "level"),
    [
        ({}, (), "ok"),
        (PROXY, None, "note"),
        (PROXY, (), "note"),
        (PROXY, ("config.base_url=http://10.0.0.5:10613",), "warning"),
        (PROXY, ("config.base_url=http://localhost:10613",), "note"),
        (PROXY, ("console.gateway=embedded",), "note"),
        (PROXY | {"NO_PROXY": "10.0.0.5"}, ("config.base_url=http://10.0.0.5:10613",), "note"),
        (PROXY | {"no_proxy": "*"}, ("console.gateway=embedded",), "note"),
        (PROXY | {"NO_PROXY": "lan,127.0.0.1"}, ("console.gateway=embedded",), "note"),
        ({"all_proxy": "socks5://p:1"}, ("config.base_url=http://10.0.0.5:10613",), "warning"),
    ],
)
def test_proxies(host, options, env: dict[str, str], words: tuple[str, ...] | None, level: str) -> None:
    made = None if words is None else options(*words)
    (check,) = checks.proxy(Case(host=host(env=env), options=made))
    assert check.level == level and SECRET not in f"{check.found}{check.remedy}"


def test_the_remedy_of_a_proxy_keeps_what_was_excepted(host, options) -> None:
    env = PROXY | {"NO_PROXY": "a.lan,b.lan"}
    (check,) = checks.proxy(Case(host=host(env=env), options=options("config.base_url=http://gpu:1")))
    assert check.remedy.startswith("export NO_PROXY=gpu,a.lan,b.lan,")


def test_certificates(host, levels, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("")
    assert levels(checks.certificates, host()) == [("env.certificates", "ok")]
    assert levels(checks.certificates, host(env={"SSL_CERT_FILE": str(bundle)})) == [("env.certificates", "ok")]
    bad = {"SSL_CERT_FILE": str(bundle), "REQUESTS_CA_BUNDLE": str(tmp_path / "none.pem")}
    (check,) = checks.certificates(Case(host=host(env=bad)))
    assert check.level == "error" and "none.pem" in check.found and str(bundle) not in check.found


@pytest.mark.parametrize(
    ("check", "env", "level"),
    [
        (checks.telemetry, {}, "ok"),
        (checks.telemetry, {"HARBOR_TELEMETRY": "0", "TINKER_TELEMETRY": "off"}, "ok"),
        (checks.telemetry, {"HARBOR_TELEMETRY": "1"}, "note"),
        (checks.insecure, {}, "ok"),
        (checks.insecure, {"QUARTERDECK_ALLOW_INSECURE": "1"}, "note"),
        (checks.insecure, {"QUARTERDECK_ALLOW_INSECURE": "0"}, "ok"),
        (checks.ci, {}, "ok"),
        (checks.ci, {"CI": "true"}, "note"),
        (checks.ci, {"GITHUB_ACTIONS": "true"}, "note"),
        (checks.ci, {"CI": "false"}, "ok"),
    ],
)
def test_other_variables(host, levels, check, env: dict[str, str], level: str) -> None:
    ((_, told),) = levels(check, host(env=env))
    assert told == level
