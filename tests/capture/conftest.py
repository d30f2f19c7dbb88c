"""What tests of the capture gateway share: the bundled model's renderer and sampler, and stages for a trial's calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from call_stage import Stage

MODEL_NAME = "quarterdeck/midshipman"


@pytest.fixture(scope="session")
def sampler(embedded_gateway: str) -> Any:
    import tinker

    service = tinker.ServiceClient(base_url=embedded_gateway, api_key="tml-tests")
    return service.create_sampling_client(base_model=MODEL_NAME).result()


@pytest.fixture(scope="session")
def renderer() -> Any:
    from console.training.setup import make_renderer, register_bundled_tokenizers

    register_bundled_tokenizers()
    return make_renderer(MODEL_NAME, "qwen3_instruct")


@pytest.fixture
async def open_stage(tmp_path: Path) -> AsyncIterator[Callable[..., Stage]]:
    """Opens stages, which are closed at the end; arguments are those of `Stage` after its directory."""
    opened: list[Stage] = []

    def open_(*args: Any, **options: Any) -> Stage:
        opened.append(Stage(tmp_path / f"capture{len(opened)}", *args, **options))
        return opened[-1]

    yield open_
    for stage in opened:
        await stage.close()
