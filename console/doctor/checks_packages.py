"""Python and the installed packages, against what this distribution asks for."""

from __future__ import annotations

import importlib.metadata
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from console.doctor.case import Case
from console.doctor.report import Check, Question

DISTRIBUTION, EXTRA = "quarterdeck", "engine"

PYTHON = Question("python.version", "the SDK and Harbor are made for it, and so is this program")
BASE = Question("pkg.base", "the console, replay and the reading of results need them")
ENGINE = Question("pkg.engine", "training needs them: the SDK, the cookbook, Harbor, torch")
BOUNDS = "its parts are used that move between versions: with another one a run may fail in the middle"
SAME = Question("pkg.same", "two installed versions of a package are a torn upgrade: which one is used is chance")
CLASH = Question("pkg.clash", "packages that are known not to go together")


class Clash(NamedTuple):
    """A package, at some versions, that does harm here."""

    name: str
    versions: str
    found: str
    remedy: str


CLASHES = (
    Clash(
        "console", "", "the package `console` overwrites files of this program, which imports under that name",
        "pip uninstall console, then install quarterdeck again",
    ),
    Clash(
        "tinker-cookbook", ">=0.6", "tinker-cookbook 0.6 needs a package that is not published",
        "pip install 'tinker-cookbook>=0.5.8,<0.6'",
    ),
    Clash(
        "e2b", ">=3", "e2b 3 no longer reads E2B_API_URL and E2B_SANDBOX_URL, and Harbor 0.26 was made for e2b 2",
        "pip install 'e2b<3'",
    ),
)  # fmt: skip


def python(case: Case) -> Iterator[Check]:
    """The interpreter's version."""
    version = ".".join(map(str, case.host.python))
    if case.host.python < (3, 12):
        yield PYTHON.error(f"Python {version}", "install Python 3.12 or later, and quarterdeck with it")
    else:
        yield PYTHON.ok(f"Python {version}")


def packages(case: Case) -> Iterator[Check]:
    """Each package that the distribution's metadata names: there, and within its bounds."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.utils import canonicalize_name
    except ImportError:
        yield BASE.skipped("the package `packaging`, which compares versions, is not installed")
        return
    installed = _installed(case)
    ours = installed.get(DISTRIBUTION)
    if not ours:
        yield BASE.skipped("the metadata of this distribution is not installed")
        return
    fine: dict[str, list[str]] = {BASE.code: [], ENGINE.code: []}
    wrong: list[Check] = []
    missing: list[str] = []
    for line in ours[0].requires or ():
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        of_engine = wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})
        if of_engine and wanted.marker is not None and not wanted.marker.evaluate({"extra": EXTRA}):
            continue  # of another system, or another extra
        name = canonicalize_name(wanted.name)
        found = installed.get(name)
        if not found:
            missing.append(name)
            if not of_engine:
                wrong.append(Question(f"pkg.{name}", BASE.why).error("is not installed", "install quarterdeck again"))
        elif wanted.specifier.contains(found[0].version, prereleases=True):
            fine[ENGINE.code if of_engine else BASE.code].append(name)
        else:
            wrong.append(
                Question(f"pkg.{name}", BOUNDS).error(
                    f"{found[0].version} is installed, {wanted.specifier} is asked for",
                    f"pip install '{name}{wanted.specifier}'",
                )
            )
    yield BASE.ok(f"{len(fine[BASE.code])} packages as asked for")
    yield _engine(case, fine[ENGINE.code], [name for name in missing if all(f"pkg.{name}" != w.code for w in wrong)])
    yield from wrong
    yield from _doubled(installed)
    yield from _clashes(installed)


def _engine(case: Case, fine: list[str], missing: list[str]) -> Check:
    if not missing:
        return ENGINE.ok(f"{len(fine)} packages as asked for")
    found, remedy = f"not installed: {', '.join(missing)}", f"pip install '{DISTRIBUTION}[{EXTRA}]'"
    if case.given or fine:
        return ENGINE.error(found, remedy)
    return ENGINE.note(f"{found}; this installation shows runs and does not train", remedy)


def _installed(case: Case) -> dict[str, list[importlib.metadata.Distribution]]:
    """By normalised name; what is imported first comes first."""
    found: dict[str, list[importlib.metadata.Distribution]] = defaultdict(list)
    chosen: Iterable[importlib.metadata.Distribution] = (
        importlib.metadata.distributions()
        if case.host.site is None
        else importlib.metadata.distributions(path=list(case.host.site))
    )
    for distribution in chosen:
        name = distribution.metadata["Name"] if distribution.metadata is not None else None
        if name:
            found[re.sub(r"[-_.]+", "-", name).lower()].append(distribution)
    return found


def _doubled(installed: Mapping[str, list[importlib.metadata.Distribution]]) -> Iterator[Check]:
    """Two versions in one directory; one directory before another on the path is how environments are layered."""
    torn = []
    for name, found in installed.items():
        by_place: dict[str, set[str]] = defaultdict(set)
        for distribution in found:
            by_place[str(distribution.locate_file(""))].add(distribution.version)
        torn += [f"{name} {' and '.join(sorted(versions))}" for versions in by_place.values() if len(versions) > 1]
    if torn:
        yield SAME.error(", ".join(torn), "install each of them again: pip install --force-reinstall NAME")
    else:
        yield SAME.ok("no package twice")


def _clashes(installed: Mapping[str, list[importlib.metadata.Distribution]]) -> Iterator[Check]:
    from packaging.specifiers import SpecifierSet

    told = False
    for clash in CLASHES:
        found = installed.get(clash.name)
        if found and SpecifierSet(clash.versions).contains(found[0].version, prereleases=True):
            told = True
            yield CLASH.error(f"{clash.found} ({found[0].version} is installed)", clash.remedy)
    if not told:
        yield CLASH.ok("none that is known")
