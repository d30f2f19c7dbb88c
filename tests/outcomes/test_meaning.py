"""Every rule and class has words."""

from __future__ import annotations

import inspect
import re

import pytest

from console.outcomes import calls, rewards, rules, text, types
from console.outcomes.classes import SCORED, OutcomeClass
from console.outcomes.meaning import CLASSES, RULES, class_meaning, policy_meaning, rule_meaning


def known_rules() -> set[str]:
    tables = (text.EXIT_RULES, text.CREATE_RULES, text.IMAGE_RULES, text.VERIFY_RULES, (text.BOOTSTRAP, text.NO_TESTS))
    found = {rule.rule for rule in types.TYPE_RULES.values()} | {rule.rule for table in tables for rule in table}
    sources = "".join(inspect.getsource(module) for module in (calls, rules))
    found |= set(re.findall(r'"((?:calls|type|end|exit|cancelled)\.[a-z_]+)"', sources))
    found |= {f"phase.{phase}" for phase in types.SETUP_PHASES | types.VERIFIER_PHASES}
    found |= {
        f"reward.{fault}"
        for fault in re.findall(r'"(missing|non_numeric|non_finite|too_large)"', inspect.getsource(rewards))
    }
    found |= {f"calls.{kind}_last" for kind in calls.LIMITS}
    return found | {"cancelled", "engine.error"}  # the engine's own


def test_every_rule_has_words_and_no_word_is_for_nothing() -> None:
    assert known_rules() == set(RULES)
    assert all(len(words) > 15 and words[0].islower() for words in RULES.values())


def test_every_class_has_words() -> None:
    assert set(CLASSES) == set(OutcomeClass)
    assert class_meaning("bad_reward")
    assert class_meaning("never heard of") == rule_meaning("never.heard") == ""


@pytest.mark.parametrize("outcome", list(OutcomeClass))
def test_what_the_policy_does(outcome: OutcomeClass) -> None:
    said = {policy: policy_meaning(outcome, policy, retryable=True) for policy in ("stop", "hold", "retry")}
    if outcome in SCORED:
        assert set(said.values()) == {"its reward is trained on; it is never tried again"}
    elif outcome is OutcomeClass.CANCELLED:
        assert "left out" in said["stop"]
    else:
        assert "the run ends" in said["stop"]
        assert "retry it" in said["hold"]
        assert "while tries are left" in said["retry"]
        assert "cannot be tried again" in policy_meaning(outcome, "hold", retryable=False)
