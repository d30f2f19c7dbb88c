"""The token bridge: what follows a sampled reply in the next prompt, without rendering what came before it.

The tokens of a reply, once sampled, are never encoded again: the next prompt is the last one, the sampled tokens, and
the rendering of the new messages. That rendering is the same that a full one would end with, because the templates of
these families write each message by itself and look no further than at its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def bridging_classes() -> tuple[type, ...]:
    """The renderers whose templates are known to write messages one by one."""
    from tinker_cookbook.renderers import qwen3, qwen3_5, qwen3_8

    return (
        qwen3.Qwen3Renderer,
        qwen3.Qwen3DisableThinkingRenderer,
        qwen3.Qwen3InstructRenderer,
        qwen3.Qwen3VLRenderer,
        qwen3.Qwen3VLInstructRenderer,
        qwen3_5.Qwen3_5Renderer,
        qwen3_5.Qwen3_5DisableThinkingRenderer,
        qwen3_8.Qwen3_8Renderer,
        qwen3_8.Qwen3_8DisableThinkingRenderer,
    )


def bridged(renderer: Any, new: Sequence[Any]) -> list[int]:
    """Ids that follow a reply's end-of-turn token: the new messages, and the beginning of the next reply.

    Args:
        renderer: one of `bridging_classes`; new: messages as the cookbook has them, behind the reply.
    """
    from tinker_cookbook.renderers import RenderContext

    # Only the reply's role matters to its neighbour, so that an empty one stands for it and all before it.
    messages = [{"role": "assistant", "content": ""}, *new]
    last_user = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=0)
    ids: list[int] = []
    for index in range(1, len(messages)):
        context = RenderContext(
            idx=index,
            is_last=index == len(messages) - 1,
            prev_message=messages[index - 1],
            next_message=messages[index + 1] if index + 1 < len(messages) else None,
            last_user_index=last_user,
            in_last_assistant_turn=True,
        )
        message = renderer.render_message(messages[index], context)
        for chunk in (message.header, *message.output):
            if chunk is not None:
                ids += chunk.tokens
    context = RenderContext(
        idx=len(messages),
        is_last=True,
        prev_message=messages[-1],
        last_user_index=last_user,
        in_last_assistant_turn=True,
    )
    return ids + list(renderer._get_generation_suffix("assistant", context))
