"""What cannot be done with a benchmark, and why (Harbor runs its trials, nothing is trained); what has other words."""

from __future__ import annotations

_ALONE = ": Harbor cannot cancel one trial of a job; {stop_after_step} begins no more, and ^c stops the job"
_MOP_UP = ": Harbor tries again by itself; when the job has ended, `quarterdeck bench mop-up` runs what was lost again"
_NO_STEPS = ": a benchmark has no training steps"
_NO_CAPTURE = ": a benchmark's tokens are not captured"

REFUSED: dict[str, str] = {
    "cancel_group": _ALONE,
    "cancel_trial": _ALONE,
    "mark": ": tasks of a benchmark cannot be cancelled one by one",
    "retry": _MOP_UP,
    "retry_all": _MOP_UP,
    "checkpoint": _NO_STEPS,
    "quarantine": _NO_STEPS,
    "page_metrics": _NO_STEPS,
    "tokens": _NO_CAPTURE,
    "previous_call": _NO_CAPTURE,
    "next_call": _NO_CAPTURE,
    "token_table": _NO_CAPTURE,
}
"""Id of an action to the reason, as it follows the action's name; in braces, an action whose key is named."""


HELP: dict[str, str] = {
    "stop_after_step": "begin no more trials, and end when those at work have ended; again to take it back",
    "interrupt": "choose: detach, begin no more trials, stop now",
    "tune": "change how many trials are at work at once",
    "sort": "sort tasks by attention, number, reward or name",
    "density": "one row a task, or its attempts beneath it (wide screens)",
}
"""Id of an action to its help in a benchmark, where it is another one than in a training."""


LABELS: dict[str, str] = {"stop_after_step": "begin no more"}
"""Id of an action to its label in a benchmark, where it is another one than in a training."""


def refusal(action_id: str, stop_after_step: str) -> str:
    """Why a benchmark does not have the action, empty when it does. `stop_after_step`: that action's key."""
    return REFUSED.get(action_id, "").format(stop_after_step=stop_after_step)
