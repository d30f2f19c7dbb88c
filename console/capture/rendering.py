"""Prompts from conversations, and replies from samples, with any renderer of the cookbook.

Everything here is synchronous and made for one thread: rendering is what keeps an event loop from its other work.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Literal

from console.capture.bridge import bridged, bridging_classes
from console.capture.chat import ChatMessage, ToolSpec
from console.capture.cookbook_messages import conversation, late_systems_as_users, rendered_messages
from console.capture.guard import ControlTokens, GuardedTokenizer, Veil
from console.capture.parsing import THINK, UNTHINK, Parsed, QwenParser, TextForm
from console.capture.refusals import RefusedError, bad_request
from console.capture.renderer_parsing import RendererParser
from console.capture.sampled_text import TokenTexts

log = logging.getLogger(__name__)


class PolicyRenderer:
    """The policy's renderer with a bridge, a guard and a parser.

    Attributes:
        name: the renderer's; history_thinking: keep or template.
        bridges: a prompt can follow a sample without being rendered as a whole; False for templates that are not known
            to allow it, and when the template is to decide what becomes of earlier thoughts.
        guards: control tokens in foreign text are encoded as text; False for renderers with a tokenizer of their own.
    """

    def __init__(self, renderer: Any, *, name: str, history_thinking: Literal["keep", "template"] = "keep") -> None:
        self.name, self.history_thinking = name, history_thinking
        tokenizer = getattr(renderer, "tokenizer", None)
        control = ControlTokens(tokenizer)
        self._veil = Veil(control)
        self._renderer = renderer
        self.guards = False
        if tokenizer is not None:
            guarded = _with_tokenizer(renderer, GuardedTokenizer(tokenizer, control, self._veil))
            self.guards = _guards(guarded, tokenizer, self._veil, control)
            if self.guards:
                self._renderer = guarded
        if not self.guards:
            self._veil = Veil(ControlTokens(None))
            log.warning("renderer %s: control tokens in foreign text cannot be told from its own", name)
        known = type(renderer) in bridging_classes()
        self._ends = frozenset(stop for stop in renderer.get_stop_sequences() if isinstance(stop, int))
        self.bridges = known and self.guards and history_thinking == "keep" and len(self._ends) == 1
        self._texts = TokenTexts(tokenizer)
        prefilled = _prefills_thought(self._renderer, self._texts)
        self._parser: QwenParser | RendererParser
        if known:
            thinks = bool(renderer.frames_thinking) and not renderer.disables_thinking
            self._parser = QwenParser(self._texts, self._ends, TextForm(prefilled=prefilled, thinks=thinks))
        else:
            self._parser = RendererParser(renderer, self._texts, self._ends, prefilled=prefilled)

    def sampling_stop(self) -> list[int] | list[str]:
        """What ends a sample, for the sampler."""
        return list(self._renderer.get_stop_sequences())

    def text_of(self, tokens: Sequence[int]) -> str:
        """The tokens decoded, control tokens included."""
        return self._texts.decode(tokens)

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> array[int]:
        """The whole prompt.

        Raises:
            RefusedError: kind `request`: the template cannot express the conversation.
        """
        if not messages:
            raise bad_request("messages", "must hold at least one message")

        def rendered(said: Sequence[ChatMessage]) -> array[int]:
            prompt = self._renderer.build_generation_prompt(conversation(self._renderer, said, tools, self._veil))
            return array("i", prompt.to_ints())

        moved = late_systems_as_users(messages)
        if moved is None:
            return _refusing(lambda: rendered(messages))
        try:
            return _refusing(lambda: rendered(messages))
        except RefusedError:
            # Some templates have system messages at the beginning only.
            return _refusing(lambda: rendered(moved))

    def extend(self, last: ChatMessage, new: Sequence[ChatMessage], node_end: int) -> array[int] | None:
        """What follows a sample in the next prompt, None when that cannot be said without the prompt before it.

        Args:
            last: the assistant's message that the sample became; new: the messages behind it.
            node_end: the sample's last token.

        Raises:
            RefusedError: kind `request`: the template cannot express the new messages.
        """
        if not self.bridges or node_end not in self._ends or last.role != "assistant":
            return None
        if any(message.role == "assistant" for message in new):
            return None
        return _refusing(lambda: array("i", bridged(self._renderer, rendered_messages(new, self._veil))))

    def parse(self, tokens_T: Sequence[int], tools: Sequence[ToolSpec], node: str, *, stop_reason: str) -> Parsed:
        """What a sample says; `node` names it, for the ids of its tool calls. Raises nothing."""
        return self._parser.parse(tokens_T, tools, node, truncated=stop_reason == "length")

    def count(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> int:
        """Tokens of the whole prompt. Raises as `render` does."""
        return len(self.render(messages, tools))


def _refusing[Result](work: Callable[[], Result]) -> Result:
    """Do the work; what a renderer cannot do with an agent's conversation is the agent's mistake."""
    try:
        return work()
    except RefusedError:
        raise
    except NotImplementedError:
        raise bad_request("tools", "cannot be offered: the policy's chat template has no tools") from None
    except RecursionError:
        raise bad_request("tools", "are nested too deeply") from None
    except Exception as error:
        log.info("a conversation cannot be rendered: %s", type(error).__name__)
        raise bad_request("messages", "cannot be expressed in the policy's chat template") from None


def _with_tokenizer(renderer: Any, tokenizer: Any) -> Any:
    """A twin of the renderer with another tokenizer; the renderer is shared with the trainer and stays as it is."""
    twin = object.__new__(type(renderer))
    twin.__dict__.update(renderer.__dict__)
    twin.tokenizer = tokenizer
    return twin


def _guards(renderer: Any, tokenizer: Any, veil: Veil, control: ControlTokens) -> bool:
    """Whether the renderer encodes with the tokenizer that it was given, so that veiled text comes out as it was."""
    word = control.example
    try:
        prompt = renderer.build_generation_prompt([{"role": "user", "content": f"a {veil.mark}{veil.over(word)} b"}])
        return f"a {word} b" in str(tokenizer.decode(prompt.to_ints()))
    except Exception:
        return False


def _prefills_thought(renderer: Any, texts: TokenTexts) -> bool:
    """Whether prompts end inside an open thought."""
    try:
        prompt = renderer.build_generation_prompt([{"role": "user", "content": "a"}]).to_ints()
        text = texts.decode(prompt)
    except Exception:
        return False
    return text.rfind(THINK) > text.rfind(UNTHINK)
