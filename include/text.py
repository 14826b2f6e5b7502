"""Texts that users write: YAML and JSON, values in messages, and characters that cannot be seen or stored."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.constructor import ConstructorError

# White space, control characters, the characters with Unicode's property Default_Ignorable_Code_Point (zero-width
# spaces and joiners, direction marks, fillers, variation selectors and tags; see DerivedCoreProperties.txt of
# Unicode 16) and the blank Braille pattern.
_INVISIBLE = (
    r"\s\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
_VISIBLE = re.compile(f"[^{_INVISIBLE}]")
_INVISIBLE_RUN = re.compile(f"[{_INVISIBLE}]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNWRITABLE = re.compile(r"[\x00\ud800-\udfff]")


def is_blank(text: str) -> bool:
    """Return whether the text has no visible character: it is empty, or has only white space and the like."""
    return _VISIBLE.search(text) is None


def seen(text: str) -> str:
    """Return the text without its invisible characters."""
    return _INVISIBLE_RUN.sub("", text)


def has_control(text: str) -> bool:
    """Return whether the text contains a tab, a line break or another control character, unfit for a TSV file."""
    return _CONTROL.search(text) is not None


def is_unwritable(text: str) -> bool:
    """Return whether the text contains half of a surrogate pair, which UTF-8 cannot encode, or a NUL character."""
    return _UNWRITABLE.search(text) is not None


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Return the number, or a description of it if it has more digits than Python converts (4,300)."""
        try:
            return super().repr_int(x, level)
        except ValueError:
            return "a number of thousands of digits"


_short = _Short()
_short.maxstring = _short.maxother = _short.maxlong = 100


def from_yaml(text: str) -> Any:
    """Parse a YAML text into mappings, lists and texts.

    A value stays the text that was written, also if it looks like a number (1_0, nan), a date or a boolean (no): the
    model of the experiment converts it. Raise ValueError if the text is not valid YAML, repeats a key, or has an alias,
    since nested aliases can expand to gigabytes.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        problem = ", ".join(str(part) for part in (error.context, error.problem) if part)
        raise ValueError(f"{line}{shorten(problem)}") from error
    except yaml.YAMLError as error:
        raise ValueError(shorten(" ".join(str(error).split()))) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def from_json(text: str) -> Any:
    """Parse a JSON text. Raise ValueError if it is not valid JSON, or repeats a key."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def shown(value: Any) -> str:
    """Return the value as Python writes it, but a number without quotes; shortened for a message."""
    text = _short.repr(value)
    return text[1:-1] if isinstance(value, str) and is_number(value) else text


def is_number(text: str) -> bool:
    """Return whether the text is a number as Python writes it, such as 3, 2e-5 or nan."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def shorten(text: str, most: int = 300) -> str:
    """Return the text, truncated to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()  # type: ignore[no-untyped-call]
            problem = f"the alias *{alias.anchor} is not supported: write the value itself"
            raise ConstructorError(problem=problem, problem_mark=alias.start_mark)
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # an invalid value after a tag, such as !!int or !!timestamp
            problem = f"{shown(node.value)} cannot be read as a value"
            raise ConstructorError(problem=problem, problem_mark=node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                problem = f"the key {shown(key.value)} is written twice: keep one of them"
                raise ConstructorError(problem=problem, problem_mark=key.start_mark)
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """Return the text with surrogate pairs joined: JSON, which is also YAML, writes an emoji as such a pair."""
        return str(self.construct_scalar(node)).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.construct_text)
_Loader.yaml_implicit_resolvers = {}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} is written twice: keep one of them")
        found[key] = value
    return found
