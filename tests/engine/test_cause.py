"""Which cause a run ends with."""

from __future__ import annotations

import httpx
import pytest
import tinker
from tinker.lib.retryable_exception import RetryableException

from console.engine.cause import COMPLETED, STOPPED, Cause, CauseKeeper, after_sleep, cause_of
from console.errors import QuarterdeckError
from console.gateway.loss import forgotten, is_gateway_loss
from console.state.model import HostState


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


def test_sandboxes_that_are_being_removed_count_as_left():
    assert CauseKeeper().final([], 2).exit_code == 7
    keeper = CauseKeeper()
    keeper.give(STOPPED)
    final = keeper.final(["box-1"], 2)
    assert final.exit_code == 8
    assert final.reason == "1 sandboxes left behind: box-1; 2 sandboxes still being removed as the engine ended"


@pytest.mark.parametrize("code", [2, 4, 5, 6, 7, 129, 130, 143])
def test_sandboxes_left_hide_no_other_cause(code):
    keeper = CauseKeeper()
    keeper.give(Cause(status="failed", exit_code=code, reason="why"))
    assert keeper.final(["box-1"]).exit_code == code


def test_an_end_without_a_cause_is_a_failure():
    assert CauseKeeper().final([]).exit_code == 7


LOST = Cause(status="failed", exit_code=5, reason="gateway lost: unknown session")


def test_a_gateway_that_is_lost_after_a_sleep_says_so():
    host = HostState(slept=540.0, slept_at=1000.0)
    assert after_sleep(LOST, host, 1030.0).reason == (
        "gateway lost: unknown session; the machine slept for 9 min, and the gateway heard nothing meanwhile"
    )


@pytest.mark.parametrize(
    ("cause", "host", "now"),
    [
        (LOST, HostState(), 1030.0),
        (LOST, HostState(slept=540.0, slept_at=1000.0), 9000.0),
        (Cause(status="failed", exit_code=7, reason="why"), HostState(slept=540.0, slept_at=1000.0), 1030.0),
    ],
)
def test_other_ends_do_not(cause, host, now):
    assert after_sleep(cause, host, now) == cause


FULL = "No space left on device"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, FULL, "/run/metrics.jsonl"), f"OSError: [Errno 28] {FULL}: '/run/metrics.jsonl'"),
        (QuarterdeckError(f"/run/s0.calls: cannot be written ({FULL})"), f"/run/s0.calls: cannot be written ({FULL})"),
        (
            RuntimeError(
                f"Request failed: tinker://m/weights/1 cannot be written to /c: {FULL} for self.request_id='r' and "
                "expected type self.model_cls=<class 'W'>"
            ),
            f"the gateway: tinker://m/weights/1 cannot be written to /c: {FULL}",
        ),
    ],
)
def test_a_disk_without_room_is_named_with_the_remedy(error, reason):
    assert cause_of(error) == Cause(status="failed", exit_code=7, reason=f"{reason}; make room, then resume the run")


def test_the_remedy_is_said_once():
    said = f"/run/journal: cannot write the journal ({FULL}); make room, then resume the run"
    assert cause_of(QuarterdeckError(said)).reason == said


def _answered(kind: type[tinker.APIStatusError], status: int, detail: str) -> tinker.APIStatusError:
    response = httpx.Response(status, request=httpx.Request("POST", "http://gw/api/v1/x"))
    return kind(f"Error code: {status} - {{'detail': '{detail}'}}", response=response, body={"detail": detail})


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


UNKNOWN = _answered(tinker.NotFoundError, 404, "sampling session 'a' is unknown to this gateway")
GONE = _answered(tinker.APIStatusError, 410, "request 'r' is unknown or its result was dropped")
DOWN = _answered(tinker.InternalServerError, 503, "no")


@pytest.mark.parametrize(
    ("error", "code", "forgot"),
    [
        (UNKNOWN, 5, True),
        (_caused(RetryableException("Promise expired/broken for request r"), GONE), 5, True),
        (_caused(ValueError("Error retrieving result: ..."), UNKNOWN), 5, True),
        (_answered(tinker.BadRequestError, 400, "model m was unloaded: lease expired"), 5, True),
        (DOWN, 5, False),
        (_caused(ValueError("Error retrieving result: ..."), DOWN), 5, False),
        (ValueError("the file is unknown to this gateway"), 7, False),
        (_answered(tinker.NotFoundError, 404, "checkpoint 'c' was not found"), 7, False),
    ],
)
def test_a_gateway_that_forgot_the_run_is_lost(error, code, forgot):
    cause = cause_of(error)
    assert cause.exit_code == code
    assert ("resumes the run" in cause.reason) == forgot
    assert forgotten(error) == forgot and is_gateway_loss(error) == (code == 5)
