"""What of a trial's captured samples is trained, and as which sequences.

Read once the trial has ended, with the whole graph in view. A *conversation* is what requests go on with: they extend
it, or they come from it with a changed history, system prompt or tool list. The *main* one is the first that has tools
or that went on; the first call of all when there is none. Its beginning is the agent's own: a policy cannot call
before it was sampled.

A sample is trained unless a row of this table says otherwise; the first that fits decides.

| excluded | which samples |
| --- | --- |
| `empty` | those without tokens |
| `aux` | side calls, such as a title: at most 2 messages, no tools, never gone on with, while the main conversation has tools, or a system prompt that this one lacks |
| `foreign` | conversations that the agent evidently did not start: no tools, and not the main one's system prompt, while the main one has either; of however many calls |
| `superseded` | a reply that nothing goes on from, and whose request was asked again later; of several such the delivered one stays, the last if there are more |
| `undelivered` | a reply that never left, and that nothing goes on from |
| `rule` | under `train = main` only: whatever is not in the largest tree of extensions (the first of equals) of kind main or summary, or not on its longest branch |

`aux` and `foreign` need a main conversation to compare with: one that has tools, that went on, or that several calls
began alike. `late` counts samples that came after the end and never entered the graph.

| kind of a segment | what it is |
| --- | --- |
| `main` | the main conversation, and others under its system prompt and tools |
| `summary` | what goes on from a compacted history, and a call without the main one's tools or system prompt that repeats a history to sum it up |
| `sub` | any other conversation: sub-agents |

Segments are the runs from a root of the tree of tokens to a leaf. At a fork the first branch goes on with the segment,
each other one begins a segment whose first prompt is everything before it; so each sample is trained exactly once.
"""  # noqa: E501 - tables

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from console.capture.captured import CapturedTrial, Segment, Turn
from console.capture.graph import Graph, Node
from console.errors import CaptureError
from console.outcomes.classes import CallEvidence
from console.records.capture_format import Sealed, SegmentLine

Rule = Literal["all", "main"]

AUX_MESSAGES = 2


def captured_trial(
    graph: Graph,
    *,
    evidence: CallEvidence,
    rule: Rule = "all",
    policy_version: int | None = None,
    late: Sequence[str] = (),
) -> CapturedTrial:
    """What training gets of a trial.

    Args:
        rule: all, or main: see the module; policy_version: of the weights that the trial was to be sampled from.
        late: names of samples that came after the trial's end.

    Raises:
        CaptureError: a sample's tokens and log-probs differ in length, or it was sampled from other weights.
    """
    if policy_version is None:
        policy_version = graph.policy_version
    elif graph.policy_version not in (None, policy_version):
        raise CaptureError(
            f"the trial was sampled from policy version {graph.policy_version}, not from {policy_version}"
        )
    view = _View(graph.nodes)
    out = view.excluded(rule)
    return CapturedTrial(
        segments=_segments(view, out),
        evidence=evidence,
        excluded=dict(Counter(out.values()) + Counter(late=len(late))),
        prompt_tokens=sum(node.prompt_tokens for node in graph.nodes),
        bridged=sum(node.parent is not None for node in graph.nodes),
        unbridged=dict(Counter(node.reason or "first" for node in graph.nodes if node.parent is None)),
        policy_version=policy_version,
    )


def sealed_record(
    graph: Graph, captured: CapturedTrial, *, rule: Rule = "all", ts: float = 0.0, late: Sequence[str] = ()
) -> Sealed:
    """The record that ends a trial's file; `rule` and `late` as for `captured_trial`, `ts` in Unix seconds."""
    names: dict[str, list[str]] = defaultdict(list)
    for node, reason in _View(graph.nodes).excluded(rule).items():
        names[reason].append(node.name)
    if late:
        names["late"] = list(late)
    evidence = captured.evidence
    return Sealed(
        ts=ts, calls=evidence.calls, failed=evidence.failed, lost=evidence.lost, no_logprobs=evidence.no_logprobs,
        segments=[
            SegmentLine(nodes=[turn.node for turn in segment.turns], reason=segment.reason, kind=segment.kind)
            for segment in captured.segments
        ],
        excluded=dict(captured.excluded),
        excluded_nodes=dict(names),
    )  # fmt: skip


class _View:
    """A finished trial's conversations. Nodes are in the order of their numbers; a call comes after what it extends."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = sorted(nodes, key=lambda node: node.number)
        self.root: dict[Node, Node] = {}  # the first node of the extensions that lead to a node
        self.top: dict[Node, Node] = {}  # of a root: the first node of its conversation
        self.trees: dict[Node, list[Node]] = defaultdict(list)  # root -> nodes
        self.talks: dict[Node, list[Node]] = defaultdict(list)  # top -> nodes
        for node in self.nodes:
            root = node if node.extends is None else self.root[node.extends]
            if root is node:
                self.top[root] = node if node.related is None else self.top[self.root[node.related]]
            self.root[node] = root
            self.trees[root].append(node)
            self.talks[self.top[root]].append(node)
        self.main = self._main()

    def excluded(self, rule: Rule) -> dict[Node, str]:
        """Samples that are not trained, and why."""
        out = {node: "empty" for node in self.nodes if not node.tokens_T}
        for root, tree in self.trees.items():
            reason = "aux" if self._is_aux(root) else "foreign" if self._is_foreign(root) else ""
            if reason:
                out |= {node: reason for node in tree if node not in out}
        groups: dict[object, list[Node]] = defaultdict(list)
        for node in self.nodes:
            if node not in out:
                groups[node.request, node.tools].append(node)
        for group in groups.values():
            out |= _repeated(group)
        if rule == "main":
            kept = self._main_branch(out)
            out |= {node: "rule" for node in self.nodes if node not in out and node not in kept}
        return {node: out[node] for node in self.nodes if node in out}

    def kind(self, root: Node) -> str:
        """Kind of the segments of a root's tree."""
        while root.related is not None:
            if root.reason == "compacted" or self._sums_up(root):
                return "summary"
            root = self.root[root.related]
        return "main" if self.main is not None and _who(root) == _who(self.main) else "sub"

    def _main(self) -> Node | None:
        for top, talk in self.talks.items():
            if top.tools or len(talk) > 1:
                return top
        return self.nodes[0] if self.nodes else None

    def _established(self, main: Node) -> bool:
        alike = sum(_who(top) == _who(main) for top in self.talks)
        return bool(main.tools) or len(self.talks[main]) > 1 or alike > 1

    def _is_aux(self, root: Node) -> bool:
        main = self.main
        if main is None or root is main or root.tools or root.count > AUX_MESSAGES or not self._alone(root):
            return False
        return self._established(main) and (bool(main.tools) or _lacks(root, main))

    def _is_foreign(self, root: Node) -> bool:
        main, top = self.main, self.top[root]
        if main is None or top is main or top.tools or not self._established(main):
            return False
        return _lacks(top, main) or (bool(main.tools) and not main.system)

    def _alone(self, root: Node) -> bool:
        return len(self.trees[root]) == 1 and not root.used

    def _sums_up(self, root: Node) -> bool:
        """Whether a call repeats a history under other rules, has no tools, and nothing goes on from it."""
        main = self.main
        if main is None or root.reason not in ("tools", "system") or root.tools or not self._alone(root):
            return False
        return bool(main.tools) or root.system != main.system

    def _main_branch(self, out: Mapping[Node, str]) -> set[Node]:
        """The longest branch of the main conversation's largest tree."""
        sizes = {
            root: sum(node not in out for node in tree)
            for root, tree in self.trees.items()
            if self.kind(root) == "main"
        }
        if not sizes:
            return set()
        tree = self.trees[max(sizes, key=lambda root: sizes[root])]  # the first of equals
        below: dict[Node, int] = {}
        onward: dict[Node, Node] = {}
        for node in reversed(tree):
            depth = below.get(node, 0) + (node not in out)
            if node.extends is not None and depth >= below.get(node.extends, 0):
                below[node.extends], onward[node.extends] = depth, node
        branch = [tree[0]]
        while branch[-1] in onward:
            branch.append(onward[branch[-1]])
        return set(branch)


def _who(node: Node) -> tuple[bytes, bytes]:
    return node.system, node.tools


def _lacks(node: Node, main: Node) -> bool:
    """Whether the main conversation has a system prompt that this one lacks."""
    return bool(main.system) and node.system != main.system


def _repeated(group: Sequence[Node]) -> dict[Node, str]:
    """Of calls with one request, in order, those whose reply nothing was made of."""
    used = [node for node in group if node.used]
    delivered = [node for node in group if node.delivered]
    kept = group[-1] if used or not delivered else delivered[-1]
    out: dict[Node, str] = {}
    for node in group:
        if node.used:
            continue
        if node.number < kept.number:
            out[node] = "superseded"
        elif not node.delivered:
            out[node] = "undelivered"
    return out


def _segments(view: _View, out: Mapping[Node, str]) -> list[Segment]:
    runs: list[Segment] = []
    run_of: dict[Node, Segment] = {}  # of a sample that nothing was appended to yet
    for node in view.nodes:
        if node in out:
            continue
        if len(node.tokens_T) != len(node.logprobs_T):
            raise CaptureError(
                f"sample {node.name} has {len(node.tokens_T)} tokens and {len(node.logprobs_T)} log-probs"
            )
        before = node.parent
        while before is not None and before in out:
            before = before.parent
        run = run_of.pop(before, None) if before is not None else None
        if run is None:
            reason = (node.chain()[0].reason or "first") if before is None else "fork"
            run = Segment(turns=[], reason=reason, kind=view.kind(view.root[node]))
            runs.append(run)
            before = None
        run.turns.append(
            Turn(
                node=node.name, prompt_new=_ids_between(before, node), tokens_T=node.tokens_T,
                logprobs_T=node.logprobs_T, stop_reason=node.stop_reason,
            )
        )  # fmt: skip
        run_of[node] = run
    return runs


def _ids_between(before: Node | None, node: Node) -> array[int]:
    """Ids of the prompt of `node` behind the end of `before`, the whole prompt for None."""
    if node.parent is before:
        return node.prompt_new
    parts = [node.prompt_new]
    step = node.parent
    while step is not before and step is not None:
        parts += [step.tokens_T, step.prompt_new]
        step = step.parent
    ids = array("i")
    for part in reversed(parts):
        ids.extend(part)
    return ids
