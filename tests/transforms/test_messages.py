import numpy as np
import pytest

from hpgrain.transforms.messages import (
  MESSAGE_KEYS,
  ROLES,
  read_conversation,
)


def read(record, *, trained_roles=("assistant",), roles=ROLES):
  return read_conversation(
    record, keys=MESSAGE_KEYS, roles=roles, trained_roles=trained_roles
  )


PAIR = [
  {"role": "user", "content": "q"},
  {"role": "assistant", "content": "a"},
]


@pytest.mark.parametrize("key", MESSAGE_KEYS)
def test_the_fields_names(key):
  for value in (PAIR, tuple(PAIR), np.array(PAIR, object)):
    found = read({key: value})
    assert found.messages == PAIR
    assert found.weights == [0, 1]
    assert found.tools is None
  # A table's other column is None.
  assert read({**dict.fromkeys(MESSAGE_KEYS), key: PAIR}).messages == PAIR


def test_share_gpts_names():
  names = ["system", "human", "gpt", "function", "observation", "tool"]
  found = read({"conversations": [{"from": n, "value": n} for n in names]})
  assert [m["role"] for m in found.messages] == [
    "system",
    "user",
    "assistant",
    "tool",
    "tool",
    "tool",
  ]
  assert [m["content"] for m in found.messages] == names
  assert found.weights == [0, 0, 1, 0, 0, 0]


def test_an_unknown_role_is_named():
  record = {"messages": [PAIR[0], {"role": "robot", "content": "secret"}]}
  with pytest.raises(
    ValueError, match="message 1: its role 'robot' is unknown; known are system"
  ) as caught:
    read(record)
  assert "secret" not in str(caught.value)
  found = read(record, roles={**ROLES, "robot": "assistant"})
  assert found.weights == [0, 1]


def test_parts_of_text_are_joined():
  parts = [{"type": "text", "text": "a"}, "b", {"type": "text", "text": " c"}]
  found = read({"messages": [{"role": "user", "content": parts}]})
  assert found.messages == [{"role": "user", "content": "ab c"}]
  picture = [{"type": "image", "url": "secret"}]
  with pytest.raises(
    ValueError, match=r"message 0: .* got one of type 'image'"
  ):
    read({"messages": [{"role": "user", "content": picture}]})


@pytest.mark.parametrize(
  "given, weight",
  [
    ({"weight": 0}, 0.0),
    ({"weight": 0.5}, 0.5),
    ({"loss_weight": 2}, 2.0),
    ({"train": False}, 0.0),
    ({"train": True, "weight": None}, 1.0),
    ({"train": np.bool_(False)}, 0.0),
    ({"train": 1, "weight": 1.0}, 1.0),
    ({}, 1.0),
  ],
)
def test_a_message_has_a_weight(given, weight):
  found = read({"messages": [{**PAIR[0], "weight": 1}, {**PAIR[1], **given}]})
  # It acts on the roles that are learnt, and is not handed to the template.
  assert found.weights == [0, weight]
  assert found.messages == PAIR


@pytest.mark.parametrize(
  "given, message",
  [
    ({"weight": -1}, "'weight' must be a number of at least 0, .* got -1"),
    ({"weight": float("inf")}, "at least 0, true or false, got inf"),
    ({"train": "yes"}, "'train' must be .* got str"),
    ({"weight": 1, "train": False}, "'weight' and 'train' differ"),
  ],
)
def test_weights_are_checked(given, message):
  with pytest.raises(ValueError, match=f"message 1: .*{message}"):
    read({"messages": [PAIR[0], {**PAIR[1], **given}]})


def test_other_keys_go_to_the_template():
  call = {"function": {"name": "f", "arguments": {"x": 1}}}
  message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [call],
    "name": None,
    "reasoning_content": "r",
  }
  found = read({"messages": [message]})
  assert found.messages == [
    {
      "role": "assistant",
      "content": "",
      "tool_calls": [call],
      "reasoning_content": "r",
    }
  ]


def test_tools_are_a_list_or_its_json():
  tools = [{"type": "function", "function": {"name": "f"}}]
  for value in (
    tools,
    np.array(tools, object),
    '[{"type": "function", "function": {"name": "f"}}]',
  ):
    assert read({"messages": PAIR, "tools": value}).tools == tools
  for value in (None, [], "", "null", "[]"):
    assert read({"messages": PAIR, "tools": value}).tools is None
  with pytest.raises(ValueError, match="'tools' is a string, but no JSON"):
    read({"messages": PAIR, "tools": "secret"})
  with pytest.raises(
    ValueError, match="'tools' must be a list of JSON schemas"
  ):
    read({"messages": PAIR, "tools": {"name": "f"}})


def test_a_records_system_prompt_comes_first():
  prompt = {"role": "system", "content": "s"}
  found = read({"messages": PAIR, "system": "s"})
  assert found.messages == [prompt, *PAIR]
  assert found.weights == [0, 0, 1]
  own = [{"role": "system", "content": "own"}, *PAIR]
  assert read({"messages": own, "system": "s"}).messages == own
  assert read({"messages": PAIR, "system": ""}).messages == PAIR
  with pytest.raises(ValueError, match="'system' must be a string, got int"):
    read({"messages": PAIR, "system": 1})


@pytest.mark.parametrize(
  "record, message",
  [
    ({"text": "a"}, "none of the fields 'messages', 'conversation'"),
    ({"messages": "a"}, "'messages' must be a list of messages.* got str"),
    ({"messages": ["a"]}, "must be a list of messages"),
    ({"messages": [{"content": "a"}]}, "message 0: it has neither 'role'"),
    ({"messages": [{"role": 1, "content": "a"}]}, "its role 'int' is unknown"),
    ({"messages": [{"role": "user"}]}, "neither 'content' nor 'value'"),
    ({"messages": [{"role": "user", "content": 1}]}, "its content must be"),
    ({"messages": [{"role": "user", "content": [1]}]}, "one of type 'int'"),
  ],
)
def test_what_is_missing_is_named(record, message):
  with pytest.raises(ValueError, match=message):
    read(record)
