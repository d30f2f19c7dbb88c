"""Which cause a run ends with."""

from __future__ import annotations

import pytest

from console.engine.cause import COMPLETED, STOPPED, Cause, CauseKeeper


def test_the_first_cause_wins():
    keeper = CauseKeeper()
    keeper.give(STOPPED)
    keeper.give(Cause(status="failed", exit_code=7))
    assert keeper.final([]) == STOPPED


@pytest.mark.parametrize(("cause", "code"), [(COMPLETED, 8), (STOPPED, 8)])
def test_sandboxes_left_replace_a_good_end(cause, code):
    keeper = CauseKeeper()
    keeper.give(cause)
    final = keeper.final(["box-1"])
    assert (final.exit_code, final.status) == (code, cause.status)
    assert "box-1" in final.reason


@pytest.mark.parametrize("code", [2, 4, 5, 6, 7, 129, 130, 143])
def test_sandboxes_left_hide_no_other_cause(code):
    keeper = CauseKeeper()
    keeper.give(Cause(status="failed", exit_code=code, reason="why"))
    assert keeper.final(["box-1"]).exit_code == code


def test_an_end_without_a_cause_is_a_failure():
    assert CauseKeeper().final([]).exit_code == 7
