"""Installed packages against the bounds of the distribution, in directories of metadata as pip leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.doctor import checks_packages as checks
from console.doctor.case import Case, Host, this_host

OURS = (
    "httpx<1,>=0.28",
    "PyYAML>=6",
    "aiohttp<4,>=3.11; extra == 'engine'",
    "tinker_cookbook<0.6,>=0.5.8; extra == 'engine'",
    "pywin32; sys_platform == 'win32'",
    "sphinx; extra == 'docs'",
)
GOOD = {"httpx": "0.28.1", "pyyaml": "6.0.2", "aiohttp": "3.12.1", "tinker-cookbook": "0.5.8"}


def site(place: Path, installed: dict[str, str], requires: tuple[str, ...] = OURS) -> list[str]:
    for name, version in {"quarterdeck": "0.1.0", **installed}.items():
        info = place / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        if name == "quarterdeck":
            text += "".join(f"Requires-Dist: {line}\n" for line in requires)
        (info / "METADATA").write_text(text)
    return [str(place)]


def told(place: list[str], *, given: bool = False) -> dict[str, tuple[str, str]]:
    made = list(checks.packages(Case(host=Host(site=place), given=given)))
    return {check.code: (check.level, check.found) for check in made}


def test_packages_as_asked_for(tmp_path: Path) -> None:
    assert told(site(tmp_path, GOOD)) == {
        "pkg.base": ("ok", "2 packages as asked for"),
        "pkg.engine": ("ok", "2 packages as asked for"),
        "pkg.same": ("ok", "no package twice"),
        "pkg.clash": ("ok", "none that is known"),
    }


@pytest.mark.parametrize(
    ("change", "code", "found"),
    [
        ({"httpx": "1.0.0"}, "pkg.httpx", "1.0.0 is installed, <1,>=0.28 is asked for"),
        ({"aiohttp": "3.10.9"}, "pkg.aiohttp", "3.10.9 is installed, <4,>=3.11 is asked for"),
        ({"tinker-cookbook": "0.6.1"}, "pkg.tinker-cookbook", "0.6.1 is installed, <0.6,>=0.5.8 is asked for"),
    ],
)
def test_a_version_out_of_bounds(tmp_path: Path, change: dict[str, str], code: str, found: str) -> None:
    assert told(site(tmp_path, GOOD | change))[code] == ("error", found)


def test_a_pre_release_within_bounds_is_within_bounds(tmp_path: Path) -> None:
    assert "pkg.aiohttp" not in told(site(tmp_path, GOOD | {"aiohttp": "3.12.0rc1"}))


def test_packages_that_are_missing(tmp_path: Path) -> None:
    without = {name: version for name, version in GOOD.items() if name not in ("httpx",)}
    assert told(site(tmp_path / "a", without))["pkg.httpx"] == ("error", "is not installed")
    viewer = {name: version for name, version in GOOD.items() if name in ("httpx", "pyyaml")}
    place = site(tmp_path / "b", viewer)
    assert told(place)["pkg.engine"][0] == "note", "the base install is whole without the extra"
    assert told(place, given=True)["pkg.engine"][0] == "error", "options are for training"
    assert told(site(tmp_path / "c", viewer | {"aiohttp": "3.12.1"}))["pkg.engine"] == (
        "error",
        "not installed: tinker-cookbook",
    ), "half of the extra is no installation"


def test_a_torn_upgrade_and_a_layered_environment(tmp_path: Path) -> None:
    place = site(tmp_path / "a", GOOD)
    site(tmp_path / "a", {"httpx": "0.28.0"})
    assert told(place)["pkg.same"] == ("error", "httpx 0.28.0 and 0.28.1")
    upper, lower = site(tmp_path / "b", {"httpx": "0.28.1"}), site(tmp_path / "c", GOOD | {"httpx": "0.20.0"})
    layered = told([*upper, *lower])
    assert layered["pkg.same"][0] == "ok" and "pkg.httpx" not in layered, "the first one on the path is used"
    assert "pkg.httpx" in told([*lower, *upper])


@pytest.mark.parametrize(
    ("name", "version", "clashes"),
    [
        ("console", "0.9.906", True),
        ("tinker-cookbook", "0.6.1", True),
        ("tinker-cookbook", "0.5.9", False),
        ("e2b", "3.0.0", True),
        ("e2b", "2.63.0", False),
    ],
)
def test_known_clashes(tmp_path: Path, name: str, version: str, clashes: bool) -> None:
    level, found = told(site(tmp_path, GOOD | {name: version}))["pkg.clash"]
    assert level == ("error" if clashes else "ok") and (not clashes or version in found)


@pytest.mark.parametrize(("version", "level"), [((3, 11, 9), "error"), ((3, 12, 0), "ok"), ((3, 13, 5), "ok")])
def test_python(host, levels, version: tuple[int, int, int], level: str) -> None:
    assert levels(checks.python, host(python=version)) == [("python.version", level)]


def test_this_environment_is_as_asked_for() -> None:
    assert {check.level for check in checks.packages(Case(host=this_host(), given=True))} == {"ok"}
