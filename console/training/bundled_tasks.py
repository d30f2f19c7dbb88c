"""The kinds of task that the bundled model knows, and the Harbor tasks in `configs/tasks` made from them.

A `Case` is one task with its names drawn: what is asked, what lies in `/app`, the commands that solve it one after
another, the slips a hasty hand makes at each of them, and how the result is graded. `console.training.pretrain` draws
cases by the thousand; `python -m console.training.bundled_tasks --out DIR` writes the sixteen that are bundled.

Kinds with two commands or more hide what the next command needs (a name, a word) in prose, in a listing or in a check's
output, so no single command written blind solves them.
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


WORDS = _words(
    "anchor apple bridge candle castle cloud desert drum falcon feather fire garden hammer island kettle lamp lantern "
    "lemon light maple mirror moon needle ocean paper pepper pillow rain river road sail ship snow spring star stone "
    "storm sugar table thunder tower tree valley violin water wheel window winter wood"
)
STEMS = _words(
    "notes out log data todo list report result temp main test demo info draft page item plan memo index order"
)
EXTENSIONS = _words("txt md csv cfg")
FOLDERS = _words("archive backup boats build cache charts docs export images inbox logs maps music photos ports work")
NOTES = _words("note.txt letter.txt message.txt request.txt readme.txt")
NAMED_AFTER = {
    "colour": _words("blue green orange pink red white"),
    "animal": _words("cat dog fox goat horse owl"),
    "metal": _words("copper gold iron lead silver zinc"),
}
CHECK = "check.sh"


@dataclass(frozen=True)
class Case:
    """One task with its names drawn.

    Attributes:
        kind: e.g. `create`; the kinds are the keys of `KINDS`.
        instruction: what the agent is asked.
        files: file name to text, in `/app` at the start.
        plan: the commands that solve it, in order.
        slips: for each command of the plan, what a hasty hand types instead.
        grading: (shell condition, score) pairs; the last condition that holds gives the score, none gives 0.
        finding: for `check` cases, what `check.sh` reports until it is put right.
    """

    kind: str
    instruction: str
    files: dict[str, str]
    plan: tuple[str, ...]
    slips: tuple[tuple[str, ...], ...]
    grading: tuple[tuple[str, float], ...]
    finding: str = ""


@dataclass(frozen=True)
class Act:
    """One change to the files: how it is asked for, done, got wrong and graded."""

    asked: tuple[str, ...]
    files: dict[str, str]
    command: str
    slips: tuple[str, ...]
    grading: tuple[tuple[str, float], ...]


def file_name(rng: random.Random, *taken: str) -> str:
    """A file name whose stem none of the `taken` names has."""
    used = {name.partition(".")[0] for name in taken}
    return f"{rng.choice([stem for stem in STEMS if stem not in used])}.{rng.choice(EXTENSIONS)}"


def _holds(name: str, text: str) -> str:
    return f'[ "$(cat {name} 2>/dev/null)" = "{text}" ]'


def _write(rng: random.Random, *taken: str) -> Act:
    f, w = file_name(rng, *taken), rng.choice(WORDS)
    asked = (f"Write {w} to {f}.", f"Put the word {w} into {f}.", f"Create the file {f} containing {w}.")
    slips = (f"touch {f}", f"touch {f}", f"echo {w}", f"cat {f}")
    return Act(asked, {}, f"echo {w} > {f}", slips, ((f"[ -f {f} ]", 0.2), (_holds(f, w), 1.0)))


def _append(rng: random.Random, *taken: str) -> Act:
    f, (old, w) = file_name(rng, *taken), rng.sample(WORDS, 2)
    asked = (f"Append {w} to {f}.", f"Add the line {w} at the end of {f}.")
    slips = (f"touch {f}", f"echo {w} > {f}", f"cat {f}")
    both = f"\"$(printf '{old}\\n{w}')\""
    grading = ((_holds(f, w), 0.3), (f'[ "$(cat {f} 2>/dev/null)" = {both} ]', 1.0))
    return Act(asked, {f: old + "\n"}, f"echo {w} >> {f}", slips, grading)


def _folder(rng: random.Random, *taken: str) -> Act:
    d = rng.choice(FOLDERS)
    asked = (f"Make a folder called {d}.", f"Create the folder {d}.")
    return Act(
        asked, {}, f"mkdir {d}", (f"touch {d}", f"touch {d}", f"ls {d}"), ((f"[ -e {d} ]", 0.2), (f"[ -d {d} ]", 1.0))
    )


def _copy(rng: random.Random, *taken: str) -> Act:
    f, w = file_name(rng, *taken), rng.choice(WORDS)
    g = file_name(rng, f, *taken)
    asked = (f"Copy {f} to {g}.", f"Duplicate {f} as {g}.")
    grading = ((_holds(g, w), 0.5), (f"{_holds(g, w)} && {_holds(f, w)}", 1.0))
    return Act(asked, {f: w + "\n"}, f"cp {f} {g}", (f"touch {g}", f"mv {f} {g}", f"cat {f}"), grading)


def _rename(rng: random.Random, *taken: str) -> Act:
    f, w = file_name(rng, *taken), rng.choice(WORDS)
    g = file_name(rng, f, *taken)
    asked = (f"Rename {f} to {g}.", f"Change the name of {f} to {g}.")
    grading = ((_holds(g, w), 0.5), (f"{_holds(g, w)} && [ ! -e {f} ]", 1.0))
    return Act(asked, {f: w + "\n"}, f"mv {f} {g}", (f"touch {g}", f"cp {f} {g}", f"cat {f}"), grading)


def _delete(rng: random.Random, *taken: str) -> Act:
    f, (v, w) = file_name(rng, *taken), rng.sample(WORDS, 2)
    g = file_name(rng, f, *taken)
    asked = (f"Delete {f}.", f"Remove the file {f}.")
    grading = ((f"[ ! -e {f} ]", 0.3), (f"[ ! -e {f} ] && {_holds(g, v)}", 1.0))
    return Act(asked, {f: w + "\n", g: v + "\n"}, f"rm {f}", (f"touch {f}", f"cat {f}", f"rm {g}"), grading)


ACTS: dict[str, Callable[..., Act]] = {
    "create": _write,
    "append": _append,
    "folder": _folder,
    "copy": _copy,
    "rename": _rename,
    "delete": _delete,
}


def _plain(kind: str, rng: random.Random) -> Case:
    act = ACTS[kind](rng)
    return Case(kind, rng.choice(act.asked), act.files, (act.command,), (act.slips,), act.grading)


def _request(rng: random.Random, act: Act) -> str:
    asked = rng.choice(act.asked)
    return f"Please {asked[0].lower()}{asked[1:]}\n"


def _note(rng: random.Random, kind: str | None = None) -> Case:
    """A note says what to do."""
    act = ACTS[kind or rng.choice(list(ACTS))](rng)
    note = rng.choice(NOTES)
    asked = rng.choice((f"Do what {note} asks.", f"Follow {note}."))
    first = (f"touch {note}", f"touch {note}", f"echo {rng.choice(WORDS)} > {note}", "ls")
    files = act.files | {note: _request(rng, act)}
    return Case("note", asked, files, (f"cat {note}", act.command), (first, act.slips), act.grading)


def _trail(rng: random.Random, kind: str | None = None) -> Case:
    """A note points to another note, which says what to do."""
    act = ACTS[kind or rng.choice(list(ACTS))](rng)
    one, two = rng.sample(NOTES, 2)
    asked = rng.choice((f"Do what {one} asks.", f"Follow {one}."))
    files = act.files | {one: f"The next note is {two}.\n", two: _request(rng, act)}
    first, second = (f"touch {one}", f"touch {one}", "ls"), (f"touch {two}", f"touch {two}", "ls")
    plan = (f"cat {one}", f"cat {two}", act.command)
    return Case("trail", asked, files, plan, (first, second, act.slips), act.grading)


def _pick(rng: random.Random, sort: str | None = None) -> Case:
    """Only the listing tells which file is meant."""
    sort = sort or rng.choice(list(NAMED_AFTER))
    target = f"{rng.choice(NAMED_AFTER[sort])}.{rng.choice(EXTENSIONS)}"
    first = file_name(rng)
    others = [first, file_name(rng, first)]
    texts = dict(zip([target, *others], rng.sample(WORDS, 3)))
    one = f"an {sort}" if sort[0] in "aeiou" else f"a {sort}"
    asked = rng.choice((f"Delete the file named after {one}.", f"Remove the file that has the name of {one}."))
    blind = f"{rng.choice(NAMED_AFTER[sort])}.{rng.choice(EXTENSIONS)}"
    kept = " && ".join(_holds(name, texts[name]) for name in others)
    second = (f"touch {target}", f"touch {target}", f"cat {target}", f"rm {rng.choice(others)}")
    return Case(
        "pick",
        asked,
        {name: f"{text}\n" for name, text in texts.items()},
        ("ls", f"rm {target}"),
        ((f"touch {blind}", f"touch {blind}", f"rm {blind}"), second),
        ((f"[ ! -e {target} ]", 0.3), (f"[ ! -e {target} ] && {kept}", 1.0)),
    )


def _check(rng: random.Random, kind: str | None = None) -> Case:
    """Only a check script's output tells what is wrong."""
    kind = kind or rng.choice(("create", "folder", "delete"))
    act = ACTS[kind](rng)
    word = act.command.split()[1]
    name = act.command.split()[-1]
    finding = {
        "create": f"{name} should contain {word}",
        "folder": f"the folder {name} is missing",
        "delete": f"{name} should not be here",
    }[kind]
    right = act.grading[-1][0]
    script = f"if {right}; then echo all is well; else echo {finding}; exit 1; fi\n"
    asked = rng.choice((f"Run {CHECK} and fix what it reports.", f"Make {CHECK} pass."))
    first = (f"touch {CHECK}", f"touch {CHECK}", "ls")
    files = act.files | {CHECK: script}
    return Case("check", asked, files, (f"sh {CHECK}", act.command), (first, act.slips), act.grading, finding)


def _label(rng: random.Random) -> Case:
    """A file says what it wants to be called."""
    f = file_name(rng)
    g = file_name(rng, f)
    asked = rng.choice((f"Give {f} the name that it asks for.", f"Rename {f} as its text says."))
    text = rng.choice((f"My name should be {g} from now on.", f"Call me {g} please."))
    blind = file_name(rng, f)
    grading = ((_holds(g, text), 0.5), (f"{_holds(g, text)} && [ ! -e {f} ]", 1.0))
    slips = ((f"mv {f} {blind}", f"touch {f}", f"touch {f}"), (f"touch {g}", f"cp {f} {g}", f"touch {g}"))
    return Case("label", asked, {f: text + "\n"}, (f"cat {f}", f"mv {f} {g}"), slips, grading)


def _answer(rng: random.Random, sort: str | None = None) -> Case:
    """A question about a text."""
    sort = sort or rng.choice(list(NAMED_AFTER))
    f = file_name(rng)
    g = file_name(rng, f)
    w, x = rng.choice(NAMED_AFTER[sort]), rng.choice(NAMED_AFTER[sort])
    place, thing = rng.sample(WORDS, 2)
    text = {
        "colour": f"We saw a {w} {thing} near the {place}.",
        "animal": f"The {w} sleeps near the {place}.",
        "metal": f"The {thing} is made of {w} and lies near the {place}.",
    }[sort]
    asked = rng.choice((f"Which {sort} does {f} mention? Write it to {g}.", f"Write the {sort} in {f} to {g}."))
    slips = ((f"echo {x} > {g}", f"touch {g}", f"touch {g}"), (f"touch {g}", f"echo {w}", f"echo {place} > {g}"))
    grading = ((f"[ -f {g} ]", 0.2), (_holds(g, w), 1.0))
    return Case("answer", asked, {f: text + "\n"}, (f"cat {f}", f"echo {w} > {g}"), slips, grading)


KINDS: dict[str, Callable[..., Case]] = {
    **{kind: lambda rng, kind=kind: _plain(kind, rng) for kind in ACTS},
    "note": _note,
    "trail": _trail,
    "pick": _pick,
    "check": _check,
    "label": _label,
    "answer": _answer,
}

BUNDLED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("create-file", "create", ()),
    ("append-line", "append", ()),
    ("make-folder", "folder", ()),
    ("copy-file", "copy", ()),
    ("rename-file", "rename", ()),
    ("delete-file", "delete", ()),
    ("note-write", "note", ("create",)),
    ("note-rename", "note", ("rename",)),
    ("note-delete", "note", ("delete",)),
    ("pick-colour", "pick", ("colour",)),
    ("pick-animal", "pick", ("animal",)),
    ("check-content", "check", ("create",)),
    ("check-folder", "check", ("folder",)),
    ("file-label", "label", ()),
    ("answer-metal", "answer", ("metal",)),
    ("note-trail", "trail", ("copy",)),
)

TASK_TOML = """\
schema_version = "1.4"

[metadata]
kind = "{kind}"
commands = {commands}

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 30.0

[environment]
build_timeout_sec = 120.0
cpus = 1
memory_mb = 512
storage_mb = 512
workdir = "/app"
network_mode = "no-network"
"""


def bundled_cases(seed: int = 1) -> dict[str, Case]:
    """Task name to case, the same for the same seed."""
    return {name: KINDS[kind](random.Random(f"{seed}/{name}"), *given) for name, kind, given in BUNDLED}


def verifier_script(case: Case) -> str:
    """`tests/test.sh`: looks at `/app` and writes the score where Harbor reads it."""
    steps = "".join(f"  if {condition}; then score={score:g}; fi\n" for condition, score in case.grading)
    return f"#!/bin/bash\nscore=0\nif cd /app; then\n{steps}fi\necho $score > /logs/verifier/reward.txt\n"


def write_task(folder: Path, case: Case) -> None:
    """Write one Harbor task. The Dockerfile is for container environments; ours copies the files as they are."""
    copied = f"COPY {' '.join(sorted(case.files))} /app/\n" if case.files else ""
    texts = {
        "task.toml": TASK_TOML.format(kind=case.kind, commands=len(case.plan)),
        "instruction.md": case.instruction + "\n",
        "environment/Dockerfile": f"FROM debian:bookworm-slim\nWORKDIR /app\n{copied}",
        "tests/test.sh": verifier_script(case),
        "solution/solve.sh": "#!/bin/bash\ncd /app || exit 1\n" + "\n".join(case.plan) + "\n",
    } | {f"environment/{name}": text for name, text in case.files.items()}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".sh" and path.parent.name != "environment":
            path.chmod(0o755)


def main(argv: list[str] | None = None) -> None:
    """Write the bundled tasks, replacing those of the same name."""
    parser = argparse.ArgumentParser(prog="python -m console.training.bundled_tasks", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the task folders into")
    out = parser.parse_args(argv).out
    for name, case in bundled_cases().items():
        shutil.rmtree(out / name, ignore_errors=True)
        write_task(out / name, case)


if __name__ == "__main__":
    main()
