"""A user's own rule file: what it may say, what is refused in which words, and how it stands beside built-in rules."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest
from harbor_jobs import HarborJob
from hypothesis import given, settings
from hypothesis import strategies as st

from console.bench.model import Judged
from console.bench.rules import tables
from console.bench.rules.patterns import LINE, compile_pattern
from console.bench.rules.user import UserRules, load_rules
from console.bench.triage import as_row, judge, rules_digest
from console.errors import UsageError
from console.outcomes.classes import OutcomeClass
from console.outcomes.meaning import BENCH_RULES, RULES, rule_meaning
from console.records.harbor.trials import read_trial

RULE = """
[[rule]]
name = "proxy"
pattern = 'upstream connect error \\d+'
where = {where}
class = "infrastructure"
cause = "api"
"""


@pytest.fixture
def rules(tmp_path: Path):
    """`rules(text)`: that text as a rule file, read."""

    def make(text: str | bytes) -> UserRules:
        path = tmp_path / "my.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_rules(path)

    return make


def one(tmp_path: Path, rules: UserRules | None, *trial: object, **rest: object) -> Judged:
    job = HarborJob(tmp_path / "jobs" / f"job{len(list(tmp_path.glob('jobs/*')))}")
    path = job.trial(*(trial or ("tb/fix-git", 0.0)), **rest)
    return judge(read_trial(job.path, path), rules)


# --- what it does --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "file", "line"),
    [
        ('"exception"', "exception.txt", 2),
        ('"agent"', "agent/mini.log", 3),
        ('"verifier"', "verifier/test-stdout.txt", 3),
        ('"trial.log"', "trial.log", 3),
        ('["verifier", "agent"]', "agent/mini.log", 3),
    ],
)
def test_a_rule_is_asked_where_it_says(tmp_path: Path, rules, where: str, file: str, line: int) -> None:
    mine = rules(RULE.format(where=where))
    said = "upstream connect error 7 (reset)"
    inside = file == "exception.txt"
    error = ("RuntimeError", said) if inside else None
    files = {} if inside else {file: f"a\nupstream connect error\n{said}\nb\n"}
    found = one(tmp_path, mine, error=error, files=files)
    assert (found.outcome, found.cause, found.rule) == ("infrastructure", "api", "user.proxy")
    assert (found.evidence.file, found.evidence.line) == (file, line) and said in found.evidence.text
    elsewhere = {"agent/notes.md": said, "artifacts/x.txt": said}
    assert one(tmp_path, mine, files=elsewhere).rule == "end.clean"


def test_before_and_after_the_built_in_rules(tmp_path: Path, rules) -> None:
    text = RULE.format(where='"exception"') + 'order = "{}"\n'
    told = ("SandboxError", "upstream connect error 7")
    assert one(tmp_path, rules(text.format("before")), error=told).rule == "user.proxy"
    after = rules(text.format("after"))
    assert one(tmp_path, after, error=told).rule == "type.sandbox"
    assert one(tmp_path, after, error=("OddError", "upstream connect error 7")).rule == "user.proxy"
    killed = "Command failed (exit 137): x\nstdout: None\nstderr: upstream connect error 7"
    assert one(tmp_path, after, error=("NonZeroAgentExitCodeError", killed)).rule == "user.proxy"
    assert one(tmp_path, after, "tb/x", 1.0).rule == "end.clean"


def test_the_first_rule_of_the_file_decides_and_tasks_are_told_apart(tmp_path: Path, rules) -> None:
    text = "".join(
        f'[[rule]]\nname="{name}"\npattern="lost"\nclass="{outcome}"\ncause="{name}"\n{task}\n'
        for name, outcome, task in (
            ("first", "configuration", 'task = "qemu-*"'),
            ("second", "infrastructure", ""),
            ("third", "ambiguous", ""),
        )
    )
    mine = rules(text)
    assert one(tmp_path, mine, "tb/qemu-startup", error=("OddError", "lost")).cause == "first"
    assert one(tmp_path, mine, "qemu-startup", error=("OddError", "lost")).cause == "first"
    assert one(tmp_path, mine, "tb/fix-git", error=("OddError", "lost")).cause == "second"
    assert one(tmp_path, mine, "tb/fix-git", error=("OddError", "LOST")).cause == "second"


@pytest.mark.parametrize("glob", ["fix-git__*", "job*/fix-git__*", "/*/job0/fix-git__*"])
def test_an_override_concerns_its_trials_alone(tmp_path: Path, rules, glob: str) -> None:
    mine = rules(f'[[override]]\ntrial="{glob}"\nclass="infrastructure"\ncause="sandbox"\nwhy="power cut"\n')
    found = one(tmp_path, mine, "tb/fix-git", 1.0)
    assert (found.outcome, found.rule, found.reward) == ("infrastructure", "user.override", 1.0)
    assert (found.evidence.text, found.evidence.file) == ("power cut", mine.path)
    assert one(tmp_path, mine, "tb/other", 1.0).rule == "end.clean"


def test_no_rule_scores_a_trial_without_a_reward(tmp_path: Path, rules) -> None:
    mine = rules('[[override]]\ntrial="*"\nclass="completed"\nwhy="I looked"\n')
    assert one(tmp_path, mine, "tb/a", 1.0, error="SandboxError").outcome is OutcomeClass.COMPLETED
    found = one(tmp_path, mine, "tb/a", error="SandboxError")
    assert found.outcome is OutcomeClass.INFRASTRUCTURE
    assert "user.override says completed" in found.notes["bench.no_reward"]


def test_another_reward(tmp_path: Path, rules) -> None:
    mine = rules('reward_key = "speed"\n')
    found = one(tmp_path, mine, "tb/a", rewards={"reward": 1.0, "speed": 0.25})
    assert (found.outcome, found.reward) == ("completed", 0.25)
    assert '"speed": 0.25' in found.evidence.text


def test_the_row_is_the_contracts(tmp_path: Path, rules) -> None:
    mine = rules(RULE.format(where='"exception"'))
    row = as_row(one(tmp_path, mine, error=("OddError", "upstream connect error 7")), mine)
    assert list(row)[:13] == [
        *("v", "trial_dir", "task", "agent", "model", "attempt", "try", "class", "cause", "reward", "exception"),
        *("evidence", "confidence"),
    ]
    assert (row["v"], row["task"], row["class"], row["exception"]) == (1, "tb/fix-git", "infrastructure", "OddError")
    assert list(row["evidence"]) == ["file", "line", "text"]
    assert row["rules"] == rules_digest(mine) == f"{tables.version()}+{mine.digest}" != rules_digest()
    other = rules(RULE.format(where='"agent"'))
    assert other.digest != mine.digest


def test_a_name_that_is_no_text_is_written_out(tmp_path: Path) -> None:
    job = HarborJob(tmp_path / "job")
    path = job.trial("tb/x", 1.0).rename(job.path / "x\udcff\nb\x1b[31m")
    row = as_row(judge(read_trial(job.path, path)))
    assert row["trial_dir"].encode() and "\\xff" in row["trial_dir"]


# --- what is refused -----------------------------------------------------------------------------------------------

GOOD = {"name": '"n"', "pattern": '"p"', "class": '"infrastructure"'}


def written(**changed: str) -> str:
    return "[[rule]]\n" + "".join(f"{key} = {value}\n" for key, value in (GOOD | changed).items() if value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (written(**{"class": '"infra"'}), "rule 1 (n): class: 'infra' is none; one of completed, agent_timeout"),
        (written(**{"class": '"no_logprobs"'}), "class: 'no_logprobs' is none"),
        (written(**{"class": ""}), "rule 1 (n): class: a text is expected"),
        (written(pattern='"("'), "rule 1 (n): pattern: it is no regular expression"),
        (written(pattern="'(a+)+$'"), "rule 1 (n): pattern: it repeats what itself repeats"),
        (written(pattern='".*"'), "pattern: it matches nothing at all"),
        (written(pattern='""'), "pattern: a text is expected"),
        (written(where='"stdout"'), "where: one or several of exception, agent, verifier, trial.log"),
        (written(where="[]"), "where: one or several"),
        (written(where="[1]"), "where: one or several"),
        (written(order='"first"'), "order: before or after is expected"),
        (written(cause='"Two words"'), "cause: a word of small letters"),
        (written(ignore_case='"no"'), "ignore_case: true or false"),
        (written(name='"a b"'), "name: letters, digits"),
        (written(name=""), "rule 1: name: a text is expected"),
        (written(klass='"x"'), "rule 1 (n): unknown key 'klass'; known are cause, class"),
        (written() + written(), "rule 'n' is there twice"),
        ('[rule]\nname = "x"\n', "rule: write each as a table that begins with [[rule]]"),
        ('[[override]]\ntrial = "x"\nclass = "infrastructure"\n', "override 1 (x): why: a text is expected"),
        ("[[overrides]]\n", "unknown key 'overrides'"),
        ("reward_key = 1\n", "reward_key: a text is expected"),
        ("a = \n", "no TOML"),
        (b"\xff\xfe", "no TOML"),
        ("a = " + "[" * 5000, "no TOML"),
        ("#" * (1 << 20) + "\n#", "larger than 1 MB"),
        ("[[rule]]\n" * 501, "at most 500 may be"),
    ],
)
def test_what_is_refused(rules, text: str | bytes, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        rules(text)
    assert refused.value.exit_code == 2
    assert said in str(refused.value)
    assert all(line.startswith("rules ") and "my.toml: " in line for line in str(refused.value).split("\n"))


def test_every_mistake_has_its_line(rules) -> None:
    with pytest.raises(UsageError) as refused:
        rules("x = 1\n" + written(order='"no"') + written(name='"m"', pattern='"["'))
    assert len(str(refused.value).split("\n")) == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(UsageError, match="give a TOML file with --rules"):
            load_rules(path)


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+$", r"(a|ab)*c", r"(?:\w+\s?)*x", r"(?>(a*)b?)+", r"(.*),(.*),(.*)x", r"(a)\1+", r"[^b]*[^c]*[^d]*x"],
)
def test_patterns_that_may_take_for_ever(pattern: str) -> None:
    with pytest.raises(ValueError, match="write"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\b50[0234]\b|Bad Gateway", "HTTP 502 Bad Gateway"),
        (r"exceeds? the (?:model'?s )?(?:maximum )?context (?:window|length)", "it exceeds the model's context length"),
        (r"sandbox \w+ died after \d+ s: .*", "sandbox s1 died after 600 s: idle"),
        (r"E: (?:Unable|Failed) to fetch.{0,80}deb", "E: Failed to fetch http://mirror/x_1.0.deb"),
        (r"(?:a|b){1,3}x", "abax"),
        (r"^panic: .*goroutine .*", "panic: lost, goroutine 1"),
    ],
)
def test_patterns_that_people_write(pattern: str, text: str) -> None:
    assert compile_pattern(pattern).search(text.upper())
    assert compile_pattern(pattern, ignore_case=False).search(text)
    assert not compile_pattern(pattern, ignore_case=False).search(text.swapcase().replace("5", "7"))


PIECES = st.sampled_from(["a", "b", r"\w", ".", "[ab]", "(?:a|b)", "(a)", "a?", "a+", ".*", "b{0,40}", "(?:ab)+", "$"])


@settings(deadline=None, max_examples=60)
@given(st.lists(PIECES, min_size=1, max_size=6), st.sampled_from(["", "*", "+", "{2}", "?"]))
def test_what_is_let_through_ends(pieces: list[str], outer: str) -> None:
    pattern = "".join(pieces)
    try:
        compiled = compile_pattern(f"(?:{pattern}){outer}z" if outer else pattern + "z")
    except ValueError:
        return
    for text in ("a" * LINE, "ab" * (LINE // 2), "b" * LINE):
        assert compiled.search(text) is None


# --- the tables ----------------------------------------------------------------------------------------------------


def test_every_built_in_rule_has_words() -> None:
    built_in = {rule.rule for table in tables.TABLES for rule in table}
    assert all(rule_meaning(rule) for rule in built_in)
    assert not set(RULES) & set(BENCH_RULES)
    source = "".join(path.read_text() for path in Path(tables.__file__).parents[1].rglob("*.py"))
    source += "".join(f'"{rule}"' for rule in built_in)
    problems = {f'"bench.{cause}"' for cause in ("incomplete", "running", "corrupt", "too_large", "permission")}
    for rule, words in BENCH_RULES.items():
        assert f'"{rule}"' in source or f'"{rule}"' in problems, rule
        assert len(words) > 15 and not words.endswith(".")


def test_globs_of_the_standard_library_do_not_backtrack() -> None:
    assert not fnmatch.fnmatchcase("a" * 3000, "*a" * 20 + "b")
