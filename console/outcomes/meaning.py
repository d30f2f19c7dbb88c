"""What outcome classes and rules mean, in words for whoever has to decide what to do about a trial."""

from __future__ import annotations

from console.outcomes.classes import SCORED, STOP_EXIT_CODES, OutcomeClass

CLASSES: dict[OutcomeClass, str] = {
    OutcomeClass.COMPLETED: "the agent ended by itself and the verifier gave a reward",
    OutcomeClass.AGENT_TIMEOUT: "the agent used up its time; the verifier judged what was there",
    OutcomeClass.CONTEXT_OVERFLOW: "the conversation outgrew the model's window; the verifier judged what was there",
    OutcomeClass.OUTPUT_LIMIT: "an answer hit its token limit and ended the agent; the verifier judged what was there",
    OutcomeClass.INFRASTRUCTURE: "something under the agent failed, not the agent: the trial says nothing about it",
    OutcomeClass.BAD_REWARD: "the agent ended, but there is no reward that can be believed",
    OutcomeClass.AGENT_FAILURE: "the agent's own program failed, and did not end by itself",
    OutcomeClass.CAPTURE_LOSS: "captured calls are missing, so the trial cannot be trained on",
    OutcomeClass.NO_LOGPROBS: "samples came without usable log-probs, so the trial cannot be trained on",
    OutcomeClass.NO_SAMPLES: "no model call was answered, so there is nothing to train on",
    OutcomeClass.CONFIGURATION: "the configuration is wrong; every further trial would fail like this one",
    OutcomeClass.CANCELLED: "somebody, or a rule of its group, stopped the trial",
    OutcomeClass.AMBIGUOUS: "the evidence contradicts itself",
    OutcomeClass.UNREADABLE: "there is no result to read: the trial is at work, was cut off, or its files are damaged",
}

RULES: dict[str, str] = {
    # --- a clean or allowed end ---
    "end.clean": "the trial ended without an exception and has a believable reward",
    "type.allowed": "the exception's type is one of those that leave the verifier's reward standing",
    # --- cancelled ---
    "cancelled": "the trial was cancelled before it had ended",
    "cancelled.asked": "the trial was cancelled, and had not ended in a scoreable way before",
    # --- what the capture gateway saw ---
    "calls.lost": "answered model calls have no readable record",
    "calls.no_logprobs": "samples have missing, wrongly sized or non-finite log-probs",
    "calls.none": "the trial ended without a captured sample",
    "calls.backend_last": "the last model call failed at the gateway's side",
    "calls.backend_share": "trouble at the gateway's side took a fifth of the agent's time or more",
    "calls.backend_only": "no model call succeeded, and the gateway's side was the reason",
    "calls.auth": "the capture gateway refused the key that the agent used",
    "calls.early_timeout": "the agent timed out long before its limit: the timeout was somebody else's",
    "calls.contradict": "the capture gateway's record contradicts what the exception claims",
    "calls.overflow_last": "the gateway refused the call that ended the agent: prompt and budget exceed the window",
    "calls.output_limit_last": "the call that ended the agent was refused at its token limit",
    "calls.budget_last": "the trial's budget was used up when the agent ended",
    "calls.truncated_last": "the agent gave up on an answer that ended at its token limit",
    "calls.excluded": "calls were answered, but none of them may be trained",
    # --- before the agent, after it ---
    "phase.create": "it failed while the trial was created, before the agent ran",
    "phase.environment": "it failed while the sandbox was set up, before the agent ran",
    "phase.setup": "it failed while the agent was installed, before the agent ran",
    "phase.verify": "an unknown exception during the verification, with no text that tells more",
    "phase.teardown": "an unknown exception after the agent's end, with no text that tells more",
    # --- the exception's type ---
    "type.sandbox": "the exception's type is one of a sandbox that failed",
    "type.setup": "the exception's type says that setting up the agent failed",
    "type.api": "the exception's type is one of a model service that failed",
    "type.network": "the exception's type is one of a network that failed",
    "type.trial_files": "the disk of the run directory refused the trial's own files",
    "type.runner": "the exception's type says that the process that ran the trial was lost",
    "type.reward_missing": "the exception's type says that the verifier left no reward",
    "type.reward_unreadable": "the exception's type says that the verifier's reward is no number",
    "type.reward_non_finite": "the verifier's reward is not finite",
    "type.verifier": "the exception's type says that the verifier itself failed",
    "type.key": "the exception's type says that a key was refused",
    "type.permission": "the exception's type says that a permission is missing",
    "type.model": "the exception's type says that there is no such model",
    "type.option": "the exception's type says that an option was refused",
    "type.quota": "the exception's type says that a quota or budget is used up",
    "type.extra": "the exception's type says that a package is not installed",
    "type.refusal": "the exception's type says that the model refused",
    "type.unknown": "an exception of a type that no table has: taken for a failure of the agent's own program",
    # --- the agent's exit ---
    "exit.not_found": "the agent's command was not found, and it had made no model call",
    "exit.killed": "the agent was killed by a signal",
    "exit.crash": "the agent ended with an exit code that is not zero",
    # --- the text of the error ---
    "text.context": "the error's text says that the context window was exceeded",
    "text.output": "the error's text says that the output limit was reached",
    "text.auth": "the error's text says that a key was refused",
    "text.quota": "the error's text says that a quota is used up",
    "text.rate": "the error's text says that a rate limit was hit",
    "text.api": "the error's text says that a model service failed",
    "text.network": "the error's text says that the network failed",
    "text.packages": "the error's text says that a package could not be fetched",
    "text.shell": "the error's text says that the sandbox lacks a program",
    "text.memory": "the error's text says that the sandbox ran out of memory",
    "text.runner": "the error came out of the process that ran the trial",
    "text.disk": "the error's text says that a disk is full",
    "text.sandbox": "the error's text says that the sandbox failed",
    "text.create_network": "the trial was refused because of the network",
    "text.create_disk": "the trial was refused because a disk or a table of files is full",
    "text.create_memory": "the trial was refused because the runner has no memory or no thread left",
    "text.image": "the error's text says that the sandbox's image is missing",
    "text.dockerfile": "the error's text says that the task's image cannot be built by the sandbox provider",
    "text.sandbox_lease": "the error's text says that the account may not have a sandbox for as long as was asked for",
    "text.sandbox_key": "the error's text says that the sandbox provider refused the key",
    "text.no_test_script": "the task has no test script",
    "text.verifier_bootstrap": "the verifier's zero is not believed: it could not fetch what it needs to run its tests",
    "text.verifier_no_tests": "the verifier's zero is not believed: no test ran",
    # --- the reward ---
    "reward.missing": "the verifier left no reward under the key that was asked for",
    "reward.non_numeric": "the reward is no number",
    "reward.non_finite": "the reward is not finite",
    "reward.too_large": "the reward is larger than is believed",
    # --- the engine ---
    "engine.error": "the engine itself failed while it ran the trial",
}

_UNREADABLE = {
    "running": "the trial is at work or waits for its turn, and has no result yet",
    "incomplete": "the trial was cut off before it had a result",
    "missing": "the trial was planned, and never began",
}
"""What the class says of the causes in which nothing is wrong with a file."""

BENCH_RULES: dict[str, str] = {
    # --- whether there is a result ---
    "bench.incomplete": "there is no result: the trial was cut off",
    "bench.running": "the trial is at work or waits for its turn: its job runs, and there is no result yet",
    "bench.corrupt": "the result cannot be parsed",
    "bench.too_large": "the result is larger than is read",
    "bench.permission": "the result may not be read",
    "bench.no_result": "there is no result; what exception.txt says stands in for it",
    "bench.exception_text": "what exception.txt says of a trial whose result cannot be used",
    "bench.reward_file": "the verifier had left a reward, but no result has it",
    # --- how it ended ---
    "bench.cancelled": "the trial was cancelled while its job ran",
    "bench.cancelled_finished": "the trial was cancelled although its job had ended: a lingering process was killed",
    "bench.lingering": "the job had ended in order, so nobody cancelled the trial on purpose",
    "bench.after_end": "the exception came after the verifier had ended, so that the reward stands",
    "bench.killed": "the agent was killed by a signal, and nothing says by whom",
    "bench.exec_timeout": "a command of the agent used up the limit that a single command has",
    "bench.exit_after_work": "a command was not found, but the agent had worked before",
    "bench.agent_bug": "the agent's own program raised an exception on the host",
    "bench.output_words": "Harbor took a word in the agent's work for an error of the model service",
    "bench.idle_killed": "the sandbox was taken away because nothing had been heard from it",
    # --- words that training needs none for ---
    "bench.context": "the error's text says that the context window was exceeded",
    "bench.refusal": "the error's text says that the model refused",
    "bench.option": "the agent's command was given an option that it does not know, often out of the task's text",
    "bench.model": "the error's text says that there is no such model",
    "bench.key": "the error's text says that a key or token is not accepted any more",
    "bench.quota": "the error's text says that a budget is used up",
    "bench.connection": "the error's text says that a connection failed",
    "bench.packages": "the error's text says that a package could not be fetched",
    "bench.programs": "the error's text says that the sandbox lacks a program",
    # --- the verifier ---
    "bench.verifier_lock": "the verifier waited for the package manager, which a process of the agent still held",
    "bench.verifier_programs": "the verifier lacked the program that runs its tests",
    "bench.verifier_packages": "the verifier could not install the program that runs its tests",
    "bench.verifier_killed": "the program that ran the verifier's tests was killed",
    "bench.verifier_fault": "the verifier could not do its work, behind an error of the agent",
    "bench.second_error": "the verification failed behind the exception that is recorded",
    "bench.reward_shape": "what the verifier wrote is no set of rewards",
    # --- notes ---
    "bench.runaway_thinking": "the time went by with next to no output: the model seems to think without end",
    "bench.low_output": "the time went by with next to no output, for a reason that nothing tells",
    "bench.tokens_missing": "the agent was ended before it could count its tokens",
    "bench.work_done": "the agent had worked before the infrastructure failed",
    "bench.idle_suspected": "it failed at the idle limit of hosted sandboxes",
    "bench.idle_pass": "a reward without any work that shows",
    "bench.exit_137": "an exit code that most often means that memory ran out",
    "bench.more_errors": "further exceptions were recorded behind the first",
    "bench.no_reward": "a user's rule would score a trial that has no reward",
    # --- a user's own ---
    "user.override": "a user said so of this very trial",
}
"""Rules of triage, which has a job directory and no capture gateway."""


def class_meaning(outcome: str, cause: str = "") -> str:
    """A sentence about the class, more exact for some causes; empty for a class that is not known."""
    if outcome == OutcomeClass.UNREADABLE and cause in _UNREADABLE:
        return _UNREADABLE[cause]
    return CLASSES[OutcomeClass(outcome)] if outcome in CLASSES else ""


def rule_meaning(rule: str) -> str:
    """A sentence about the rule; empty for one that is not known."""
    return RULES.get(rule, "") or BENCH_RULES.get(rule, "")


def policy_meaning(outcome: str, on_failure: str, retryable: bool) -> str:
    """What becomes of a trial with this outcome under the policy `on_failure` (stop, hold or retry)."""
    if outcome in SCORED:
        return "its reward is trained on; it is never tried again"
    if outcome == OutcomeClass.CANCELLED:
        return "it is left out; its group trains without it when enough trials are left"
    code = STOP_EXIT_CODES.get(OutcomeClass(outcome)) if outcome in CLASSES else None
    ends = f"the run ends with exit code {code}" if code is not None else "the run ends"
    if on_failure == "hold":
        able = "retry it or cancel its group" if retryable else "cancel its group; it cannot be tried again"
        return f"the operator may {able}; when nobody does in time, {ends}"
    if on_failure == "retry" and retryable:
        return f"tried again while tries are left; after the last one {ends}"
    return ends
