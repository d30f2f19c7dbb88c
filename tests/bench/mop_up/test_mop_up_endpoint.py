"""A mop-up of a job whose model is served elsewhere now: it is run there, and told."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harbor_jobs import tree_hash
from harbor_stage import Stage

GONE = "http://127.0.0.1:1/v1"


class _Models(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"object": "list", "data": [{"id": "served", "object": "model"}]}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def served() -> Iterator[str]:
    """A model's endpoint that is alive."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Models)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_the_endpoint_may_change(tmp_path: Path, served: str) -> None:
    stage = Stage(tmp_path, ["dead", "sound"])
    stage.doom(dead=1)
    agent = {
        "import_path": "mop_up_agents:Fated",
        "model_name": "openai/served",
        "kwargs": {"fates": str(stage.fates), "api_base": GONE},
    }
    job = stage.run("first", agents=[agent])
    before, _ = tree_hash(job), stage.begun
    command = ("mop-up", "jobs/first", "--yes", "--headless")
    code, out, err = stage.bench(*command, "--api-base", served)
    assert code == 0, err
    assert stage.begun == {"dead": 1}
    lineage = json.loads((stage.jobs / "first-mop-up-1" / "quarterdeck-mop-up.json").read_text())
    assert lineage["changes"] == [
        {"key": "agents.0.kwargs.api_base", "before": GONE, "after": served, "measured": False}
    ]
    assert tree_hash(job) == before
    code, out, err = stage.bench("tally", job, stage.jobs / "first-mop-up-1", "--json", "--mode", "infra-excluded")
    found = json.loads(out)
    (mode,) = found["modes"]
    assert (mode["numerator"], mode["denominator"]) == (2, 2)
    assert "the model was served elsewhere" in out
