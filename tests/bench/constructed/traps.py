"""The words of failures in harmless places: in the work of agents that pass, fail or end for some other reason."""

from __future__ import annotations

from tests.bench.constructed.making import ONE, REWARD, ZERO, Made, ends, gives_up

WORDS = (
    "nginx: limit_req zone=one; 429 Too Many Requests: rate limit exceeded, as asked",
    "curl: (7) Failed to connect to localhost port 8080: Connection refused",
    "Error: context length exceeded, says the test server that I wrote; maximum context length is 8",
    "Error: 401 Unauthorized, as the task wants; Incorrect API key",
    "E: Unable to locate package foo; trying bar; sh: 1: ps: not found",
    "sbx-server: idle for 601917ms, shutting down",
    "curl: (28) Operation timed out; uvx: command not found; no tests ran in 0.01s",
)
SOLVES = "cat <<'WORK'\n" + "\n".join(WORDS) + "\nWORK\n"
LOG = {"scripted.txt": "\n".join(WORDS) + "\n"}
LONG_LOG = {
    "scripted.txt": "Error: HTTP 401 Unauthorized\nError: maximum context length is 8\n" + "it works on\n" * 400
}
COUNTED = "echo '==== 2 failed, 1 passed in 2.00s ===='"


def solves(name: str, test: str, reward: float, **more: object) -> Made:
    return ends(
        "an agent's work that speaks of failures", name, test, "completed", "end.clean", f'"reward": {reward}',
        reward=reward, does={"script": SOLVES, "files": LOG, "tokens": [90, 30]}, **more,
    )  # type: ignore[arg-type] # fmt: skip


def prints(kind: str, name: str, *lines: str, reward: float = 0.0, more: str = "") -> Made:
    test = "\n".join(["cat <<'SAID'", *lines, "SAID", more, f"echo {reward:g} > {REWARD}.txt"])
    return ends(kind, name, test, "completed", "end.clean", f'"reward": {reward}', reward=reward)


def crashes(kind: str, name: str, said: str = "", **more: object) -> Made:
    return gives_up(kind, name, said, "agent_failure/crash", "exit.crash", code=3, text="exit 3", **more)  # type: ignore[arg-type]


def read_wrongly(name: str, stdout: str, text: str, exception: str) -> Made:
    return gives_up(
        "a word of the work that Harbor takes for a failure", name, "", "ambiguous/output_words", "bench.output_words",
        stdout=stdout, text=text, exception=exception,
    )  # fmt: skip


TRIALS: tuple[Made, ...] = (
    solves("trap-pass", ONE, 1.0),
    solves("trap-fail", ZERO, 0.0),
    solves("trap-partial", f"echo 0.5 > {REWARD}.txt", 0.5),
    ends("a time-out whose log speaks of failures", "trap-late", ZERO, "agent_timeout", "type.allowed",
         "AgentTimeoutError", file="exception.txt", reward=0.0, exception="AgentTimeoutError", agent=1,
         does={"script": "sleep 60", "files": LOG}),
    ends("a time-out whose log speaks of failures", "trap-late-won", ONE, "agent_timeout", "type.allowed",
         "AgentTimeoutError", file="exception.txt", reward=1.0, exception="AgentTimeoutError", agent=1,
         does={"script": "sleep 60", "files": LOG}),
    prints("a verifier that counted its tests and speaks of failures", "trap-counted",
           "curl: (28) Operation timed out", "uvx: command not found", "==== 1 failed in 2.00s ===="),
    prints("a verifier that counted its tests and speaks of failures", "trap-counted-lock",
           "Waiting for cache lock: Could not get lock /var/lib/dpkg/lock", "test_empty: no tests ran in 0.01s",
           "2 failed, 1 passed in 2.00s", "/tests/test.sh: line 9:   812 Killed   sleep 99"),
    prints("a verifier that counted its tests and speaks of failures", "trap-ctrf", "uvx: command not found",
           more="echo '{\"results\": {\"summary\": {\"tests\": 3, \"failed\": 3}}}' > /logs/verifier/ctrf.json"),
    prints("a verifier's pass that speaks of failures", "trap-won", "curl: (28) Operation timed out",
           "uvx: command not found", reward=1.0),
    prints("a verifier's pass that speaks of failures", "trap-won-none", "no tests ran in 0.01s", reward=1.0),
    prints("a program of the agent's that dies under its verifier", "trap-program-killed",
           "/tests/test.sh: line 9:   812 Killed                  /app/solve < /data/in"),
    prints("a program of the agent's that dies under its verifier", "trap-program-crashed",
           "/tests/test.sh: line 9:   812 Segmentation fault      /app/solve < /data/in"),
    prints("a package of the agent's that its verifier cannot install", "trap-package",
           "ERROR: No matching distribution found for vectorops==0.1.0"),
    prints("a package of the agent's that its verifier cannot install", "trap-package-old",
           "ERROR: Could not find a version that satisfies the requirement vectorops (from versions: none)"),
    prints("a verifier that runs no test program", "trap-scorer", "score: 0 of 12"),
    prints("a verifier that runs no test program", "trap-silent"),
    prints("a verifier whose own server does not answer", "trap-local",
           "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Connection refused"),
    prints("a verifier whose own server does not answer", "trap-local-ip",
           "curl: (52) Empty reply from server 127.0.0.1:3000"),
    crashes("words far before the end of a log", "trap-old-log", does={"files": LONG_LOG}),
    crashes("words far before the end of a log", "trap-old-log-won", does={"files": LONG_LOG}, test=ONE, reward=1.0),
    ends("words of the command that ran", "trap-command", ZERO, "agent_failure/crash", "exit.crash", "exit 3",
         file="exception.txt", reward=0.0, exception="NonZeroAgentExitCodeError",
         does={"script": ": 'Error: 401 Unauthorized must not come; maximum context length is 8'; exit 3"}),
    ends("words of the command that ran", "trap-command-rate", ZERO, "agent_failure/crash", "exit.crash", "exit 3",
         file="exception.txt", reward=0.0, exception="NonZeroAgentExitCodeError",
         does={"script": ": 'Error: HTTP 429 too many requests, E: Failed to fetch'; exit 3"}),
    crashes("words of the work in no error line", "trap-work",
            stdout="I set the usage limit to 402 and the maximum context length to 8, and answer 503"),
    crashes("words of the work in no error line", "trap-work-api",
            stdout="the page for 401 Unauthorized and Bad Gateway is a custom one, as asked"),
    read_wrongly("trap-nginx", "the nginx rate limit is set", "rate limit", "ApiRateLimitError"),
    read_wrongly("trap-many", "the server says too many requests now, as asked", "too many requests",
                 "ApiRateLimitError"),
    read_wrongly("trap-curl", "curl: (7) Failed to connect to localhost port 8080 after 0 ms", "curl: (7)",
                 "NetworkConnectionError"),
    read_wrongly("trap-curl-404", "curl: (22) The requested URL returned error: 404", "curl: (22)",
                 "NetworkConnectionError"),
    read_wrongly("trap-postgres",
                 'psql: error: connection to server at "localhost" (::1), port 5432 failed: Connection refused',
                 "Connection refused", "NetworkConnectionError"),
    read_wrongly("trap-ssh", "ssh: connect to host 127.0.0.1 port 22: Connection refused", "Connection refused",
                 "NetworkConnectionError"),
)  # fmt: skip
