"""What all tests share: quiet tools, a state directory of their own, and an embedded gateway for those that need it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
MODEL_NAME = "quarterdeck/midshipman"
GATEWAY_KEY = "tml-tests"

os.environ.update(
    HARBOR_TELEMETRY="0",
    TINKER_TELEMETRY="0",
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    TQDM_DISABLE="1",
    TINKER_API_KEY=GATEWAY_KEY,
)

if sys.dont_write_bytecode and os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    # Engines and gateways would each compile all of torch anew, which takes more than half of their start. The
    # environment wants nothing written beside the sources, so what is compiled lies elsewhere, for this session.
    # Workers and children inherit it.
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="quarterdeck-pycache-")
    sys.dont_write_bytecode = False
    atexit.register(shutil.rmtree, sys.pycache_prefix, ignore_errors=True)

# No test fails for being slow. In CI the examples are the same each time: what it refuses can be seen again.
settings.register_profile("quarterdeck", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("quarterdeck")

WHOLE_RUNS = ("tests/faults/", "tests/end_to_end/", "tests/pty/")
PROCESSES = ("tests/test_headless.py", "tests/trials/test_runner_pool.py", "tests/test_demo_command.py")


def pytest_configure(config: pytest.Config) -> None:
    """Workers take the files in the order of the collection, not those with the most tests first."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of few and long tests come first: at the end of a session one of them would keep one worker busy alone.

    They kill, starve and outwait real processes, which a machine that is busy with other things may do on its own: what
    fails is tried once more, and the summary names it.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(WHOLE_RUNS))
    for item in items:
        if item.nodeid.startswith((*WHOLE_RUNS, *PROCESSES)):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session", autouse=True)
def _state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests register their runs in a directory of their own."""
    before = os.environ.get("QUARTERDECK_STATE_DIR")
    os.environ["QUARTERDECK_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["QUARTERDECK_STATE_DIR"]
    else:
        os.environ["QUARTERDECK_STATE_DIR"] = before


@pytest.fixture(scope="session")
def embedded_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an embedded gateway with the bundled model, for the whole session."""
    checkpoints = tmp_path_factory.mktemp("gateway")
    with (checkpoints / "gateway.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "console.gateway.embedded", "--model", str(ROOT / "configs/models/midshipman")),
                *("--name", MODEL_NAME, "--checkpoints", str(checkpoints), "--max-models", "64", "--exit-with-stdin"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.stdin.close()
        process.wait(20)
