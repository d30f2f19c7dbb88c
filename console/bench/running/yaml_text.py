"""Plain data out of YAML or JSON text that somebody else wrote: bounded, without repeats, each mistake on one line."""

from __future__ import annotations

import json
from typing import Any

import yaml

LARGEST = 1_000_000
"""Characters of a job file; the largest that names tasks one by one has some ten thousand."""
MOST_NODES, DEEPEST = 200_000, 60
"""Values of a file, each counted as often as an alias repeats it, and how far they may be nested."""


class TextError(ValueError):
    """The text is no usable YAML; the message is one line and names the line of the text."""


class _Loader(yaml.SafeLoader):
    """Safe, with dates left as the text they are: a job may well be called 2026-11-30."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }


def read_text(text: str) -> Any:
    """The data of one document: mappings with text keys, lists, texts, numbers, booleans, None.

    Raises:
        TextError: it is too large, no YAML, repeats a key, nests without end, or has a value that is no plain data.
    """
    if len(text) > LARGEST:
        raise TextError(f"it has {len(text):,} characters, and {LARGEST:,} are allowed")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _bounded(node)
            return _plain(loader.construct_document(node))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise TextError(f"it is no valid YAML{where}: {problem.problem or problem.context or 'unreadable'}") from None
    except yaml.YAMLError as problem:
        raise TextError(f"it is no valid YAML: {' '.join(str(problem).split())[:200]}") from None
    except (ValueError, OverflowError) as problem:
        if isinstance(problem, TextError):
            raise
        raise TextError(f"a value cannot be read: {' '.join(str(problem).split())[:200]}") from None
    except RecursionError:
        raise TextError(f"it is nested deeper than {DEEPEST} levels") from None


def read_json(text: str) -> Any:
    """The same of JSON text, which YAML is not in all its forms. Raises TextError."""
    if len(text) > LARGEST:
        raise TextError(f"it has {len(text):,} characters, and {LARGEST:,} are allowed")
    try:
        return _plain(json.loads(text, object_pairs_hook=_without_repeats))
    except json.JSONDecodeError as problem:
        raise TextError(f"it is no valid JSON at line {problem.lineno}: {problem.msg}") from None
    except TextError:
        raise
    except (ValueError, RecursionError) as problem:
        raise TextError(f"it is not usable: {' '.join(str(problem).split())[:200]}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise TextError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return found


def scalar(text: str) -> Any:
    """What a value of a command line means: YAML, or, when it is none, the text as it stands."""
    try:
        return read_text(text)
    except TextError:
        return text


def _bounded(root: yaml.Node) -> None:
    """Raises TextError for what would not end, or for repeated keys. Looks at each node once."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: yaml.Node, depth: int) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        line = node.start_mark.line + 1
        if id(node) in open_nodes:
            raise TextError(f"line {line}: a value contains itself")
        if depth > DEEPEST:
            raise TextError(f"line {line}: it is nested deeper than {DEEPEST} levels")
        open_nodes.add(id(node))
        total = 1
        for child in _children(node):
            total += size(child, depth + 1)
            if total > MOST_NODES:
                raise TextError(f"line {line}: it has more than {MOST_NODES:,} values, aliases written out")
        open_nodes.discard(id(node))
        sizes[id(node)] = total
        return total

    size(root, 0)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if not isinstance(node, yaml.MappingNode):
        return []
    seen: set[str] = set()
    children: list[yaml.Node] = []
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen and key.value != "<<":
                raise TextError(f"line {key.start_mark.line + 1}: the key {key.value!r} appears twice")
            seen.add(key.value)
        children += [key, value]
    return children


def _plain(value: Any, path: str = "") -> Any:
    """The same, if JSON can hold it. Raises TextError."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        _finite(value, path)
        return value
    if isinstance(value, list):
        return [_plain(item, f"{path}.{index}" if path else str(index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TextError(f"{path or 'the file'}: the key {json.dumps(key, default=str)} is no text; quote it")
        return {key: _plain(item, f"{path}.{key}" if path else key) for key, item in value.items()}
    raise TextError(f"{path or 'the file'}: a {type(value).__name__} is no plain value; quote it")


def _finite(value: float, path: str) -> None:
    if value != value or value in (float("inf"), float("-inf")):
        raise TextError(f"{path or 'the file'}: {value} is no number that a limit can be; give a finite one")
