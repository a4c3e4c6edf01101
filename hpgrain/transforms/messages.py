r"""A record in, its conversation out, in one form whatever it came in.

  {"conversations": [{"from": "human", "value": "Hi"}, ...]}      ShareGPT
  {"messages": [{"role": "user", "content": [{"type": "text", ..}]}, ...]}
    -> [{"role": "user", "content": "Hi"}, ...], a weight each, and the tools

Other keys of a message (tool_calls, name, reasoning_content, ...) are handed
to the template as they are; those that are None are left out, since tables
fill with it.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpgrain.transforms.transform import Record

MESSAGE_KEYS = ("messages", "conversation", "conversations")
ROLES: Mapping[str, str] = {
  "system": "system",
  "user": "user",
  "assistant": "assistant",
  "tool": "tool",
  "human": "user",
  "gpt": "assistant",
  "function": "tool",
  "observation": "tool",
}
_WEIGHTS = ("weight", "loss_weight", "train")
_TAKEN = frozenset({"role", "from", "content", "value", *_WEIGHTS})


@dataclasses.dataclass(frozen=True)
class Conversation:
  """A conversation, as templates want it.

  Attributes:
    messages: each with `role` and `content`, both strings.
    weights: what each message's tokens count for in the loss; 0 where it is
      not learnt.
    tools: JSON schemas, or None.
  """

  messages: list[dict[str, Any]]
  weights: list[float]
  tools: list[Any] | None


def read_conversation(
  record: Record,
  *,
  keys: Sequence[str],
  roles: Mapping[str, str],
  trained_roles: Sequence[str],
) -> Conversation:
  """Takes a record's conversation.

  Args:
    record: with one of the keys; `tools` (a list, or its JSON) and `system`
      (a prompt, for a conversation that begins with none) if it has them.
    keys: fields that may hold the messages; the first that it has is taken.
    roles: what each name of a role stands for.
    trained_roles: the roles that are learnt. A message's own `weight`,
      `loss_weight` or `train` acts on these alone.

  Raises:
    ValueError: something is missing or of another kind; no text is quoted.
  """
  messages, weights = [], []
  for number, message in enumerate(_messages(record, keys)):
    try:
      role = _role(message, roles)
      made = {
        key: value
        for key, value in message.items()
        if key not in _TAKEN and value is not None
      }
      has_calls = bool(made.get("tool_calls"))
      content = _content(message, optional=has_calls)
      weight = _weight(message)
    except ValueError as error:
      raise ValueError(f"message {number}: {error}") from None
    messages.append({"role": role, "content": content, **made})
    weights.append(weight if role in trained_roles else 0.0)
  prompt = record.get("system")
  if prompt is not None and messages and messages[0]["role"] != "system":
    if not isinstance(prompt, str):
      raise ValueError(
        f"its field 'system' must be a string, got {type(prompt).__name__}."
      )
    if prompt:
      messages.insert(0, {"role": "system", "content": prompt})
      weights.insert(0, 1.0 if "system" in trained_roles else 0.0)
  return Conversation(messages, weights, _tools(record))


def _messages(record: Record, keys: Sequence[str]) -> list[Mapping[str, Any]]:
  for key in keys:
    if record.get(key) is None:
      continue
    value = record[key]
    if isinstance(value, np.ndarray):
      value = value.tolist()
    if not isinstance(value, (list, tuple)) or not all(
      isinstance(message, Mapping) for message in value
    ):
      raise ValueError(
        f"its field {key!r} must be a list of messages, each an object with a"
        f" role and content; got {type(value).__name__}."
      )
    return list(value)
  raise ValueError(
    f"it has none of the fields {', '.join(map(repr, keys))}. Set"
    " data_transform.text_keys to the field that holds the messages."
  )


def _role(message: Mapping[str, Any], roles: Mapping[str, str]) -> str:
  name = message.get("role")
  if name is None:
    name = message.get("from")
  if name is None:
    raise ValueError("it has neither 'role' nor 'from'.")
  if not isinstance(name, str) or name not in roles:
    shown = name[:40] if isinstance(name, str) else type(name).__name__
    raise ValueError(
      f"its role {shown!r} is unknown; known are {', '.join(roles)}. Set"
      " data_transform.role_names to say which of them it stands for."
    )
  return roles[name]


def _content(message: Mapping[str, Any], *, optional: bool) -> str:
  content = message.get("content")
  if content is None:
    content = message.get("value")
  if content is None and optional:
    return ""
  if isinstance(content, str):
    return content
  if isinstance(content, np.ndarray):
    content = content.tolist()
  if isinstance(content, (list, tuple)):
    return "".join(map(_part, content))
  if content is None:
    raise ValueError("it has neither 'content' nor 'value'.")
  raise ValueError(
    "its content must be a string or a list of text parts, got"
    f" {type(content).__name__}."
  )


def _part(part: Any) -> str:
  if isinstance(part, str):
    return part
  kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
  if kind == "text" and isinstance(part.get("text"), str):
    return part["text"]
  raise ValueError(
    "a part of its content must be {'type': 'text', 'text': ...}, got one of"
    f" type {str(kind)[:40]!r}; only text is supported here."
  )


def _weight(message: Mapping[str, Any]) -> float:
  given = {
    key: message[key] for key in _WEIGHTS if message.get(key) is not None
  }
  for key, value in given.items():
    number = isinstance(value, (int, float, np.number, np.bool_))
    if not number or not math.isfinite(value) or value < 0:
      raise ValueError(
        f"its {key!r} must be a number of at least 0, true or false, got"
        f" {value if number else type(value).__name__}."
      )
  if len({float(value) for value in given.values()}) > 1:
    raise ValueError(
      f"its {' and '.join(map(repr, given))} differ. Give one of them."
    )
  return float(next(iter(given.values()), 1.0))


def _tools(record: Record) -> list[Any] | None:
  tools = record.get("tools")
  if isinstance(tools, str):
    # As data sets store them whose tools share no schema.
    try:
      tools = json.loads(tools) if tools.strip() else None
    except json.JSONDecodeError:
      raise ValueError("its field 'tools' is a string, but no JSON.") from None
  if isinstance(tools, np.ndarray):
    tools = tools.tolist()
  if tools is None or tools == []:
    return None
  if not isinstance(tools, list) or not all(
    isinstance(tool, Mapping) for tool in tools
  ):
    raise ValueError(
      "its field 'tools' must be a list of JSON schemas, or the JSON of one,"
      f" got {type(tools).__name__}."
    )
  return tools
