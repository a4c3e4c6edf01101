"""A JSON object's bytes to its texts: the reference, and orjson equal to it."""

import json
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.json_texts import (
  MAX_DEPTH,
  batch_parser,
  reference_texts,
  text_parser,
)

SECRET = b"sesame"


def outcome(parse, data):
  try:
    return parse(data)
  except BadTextError as error:
    return str(error)


@pytest.mark.parametrize(
  ("data", "text"),
  [
    (b'{"text": "a"}', "a"),
    (b' {"text":"a"}\r', "a"),
    (b'{"text": ""}', ""),
    (b'{"text": "\\u00e9\\n\\ud83d\\ude00"}', "é\n😀"),
    ('{"text": "é\u2028😀"}'.encode(), "é\u2028😀"),
    (b'{"t\\u0065xt": "a"}', "a"),
    (b'{"text": 1, "text": "last"}', "last"),
    (b'{"x": NaN, "text": "a"}', "a"),
    (b'{"x": -Infinity, "text": "a"}', "a"),
    (b'{"x": 1e999, "text": "a"}', "a"),
    (b'{"x": ' + b"9" * 400 + b', "text": "a"}', "a"),
    (b'{"x": "\\ud83d", "text": "a"}', "a"),
    (b'{"\\ud83d": 1, "text": "a"}', "a"),
    (b'{"x": {"text": "b"}, "text": "a"}', "a"),
    (b'{"x": "' + b"[" * 2000 + b'", "text": "a"}', "a"),
  ],
)
def test_text_is_that_of_the_standard_library(any_json, data, text):
  assert text_parser(["text"])(data) == (text,)
  assert text_parser(["text"])(bytearray(data)) == (text,)
  assert json.loads(data)["text"] == text


@pytest.mark.parametrize(
  ("data", "message"),
  [
    (b'{"texts": "sesame"}', "has no key 'text'; it has 1 other keys"),
    (b'{"text": null}', "holds null under 'text', not a string"),
    (b'{"text": ["sesame"]}', "holds an array under 'text'"),
    (b'{"text": 5}', "holds a number under 'text'"),
    (b'{"text": 5.5}', "holds a number under 'text'"),
    (b'{"text": NaN}', "holds a number under 'text'"),
    (b'{"text": true}', "holds a boolean under 'text'"),
    (b'{"text": {"text": "sesame"}}', "holds an object under 'text'"),
    (b'"sesame"', "is a string, not an object"),
    (b'[{"text": "sesame"}]', "is an array, not an object"),
    (b"null", "is null, not an object"),
    (b'{"text": "sesame', "is not JSON: Unterminated string"),
    (b'{"text": "sesame"} x', "is not JSON: Extra data at character 19"),
    (b'{"text": "sesame"}\xef\xbb\xbf', "is not JSON: Extra data"),
    (b'\xef\xbb\xbf{"text": "sesame"}', "is not JSON: Unexpected UTF-8 BOM"),
    (b"{'text': 'sesame'}", "is not JSON: Expecting property name"),
    (b'{"text": "sesame\x01"}', "is not JSON: Invalid control character"),
    (b'{"text": "sesame\\x"}', "is not JSON: Invalid"),
    (b'{"x": 01, "text": "sesame"}', "is not JSON"),
    (b'{"text": "sesame",}', "is not JSON"),
    (b'{"text": "sesame\xff"}', "is not UTF-8: byte 0xff at 16 bytes"),
    (b'{"x": "\xed\xa0\x80", "text": "sesame"}', "is not UTF-8: byte 0xed"),
    (b'{"text": "sesame \\ud83d"}', "half of a surrogate pair under 'text'"),
    (b'{"text": ' + b"[" * 100_000, "is not readable JSON"),
    (b'{"text": ' + b"1" * 5_000 + b"}", "a number of too many digits"),
  ],
)
def test_what_is_wrong_is_said_and_not_shown(any_json, data, message):
  with pytest.raises(BadTextError, match=message) as caught:
    text_parser(["text"])(data)
  shown = "".join(traceback.format_exception(caught.value))
  assert SECRET.decode() not in shown


@pytest.mark.parametrize("opens, closes", ["[]", ['{"x":', "}"]])
@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, 990, 1020])
def test_depth_has_a_limit_of_its_own(any_json, levels, opens, closes):
  nested = (opens * (levels - 1) + "[]" + closes * (levels - 1)).encode()
  data = b'{"x": ' + nested + b', "text": "a"}'
  if levels < MAX_DEPTH:
    assert text_parser(["text"])(data) == ("a",)
  else:
    with pytest.raises(BadTextError, match="nested"):
      text_parser(["text"])(data)


def test_texts_of_several_keys_in_the_order_asked_for(any_json):
  parse = text_parser(["b", "a"])
  assert parse(b'{"a": "1", "b": "2", "c": 3}') == ("2", "1")
  with pytest.raises(BadTextError, match="holds a number under 'a'"):
    parse(b'{"a": 1, "b": "2"}')
  with pytest.raises(BadTextError, match="has no key 'b'; it has 1 other"):
    parse(b'{"a": "1"}')


def test_many_at_once_are_none_where_one_is_in_doubt():
  pytest.importorskip("orjson")
  parse = batch_parser(["text"])
  good = b'{"text": "a"}'
  assert parse([good, good]) == [("a",), ("a",)]
  for doubt in (b"", b"{}", b'{"text": 1}', b"[]", b'"text"', b'{"x": NaN}'):
    assert parse([good, doubt, good]) is None


PIECES = st.sampled_from(
  [
    *'{}[]":,\\ \t\r\n\x00\x0b\x0c\x1f\x7f/-+.eE0123456789',
    "null",
    "true",
    "NaN",
    "Infinity",
    '"text"',
    '"text":',
    '{"text":"a"',
    "\\u",
    "\\ud83d",
    "\\udc00",
    "\\u0000",
    "1e400",
    "18446744073709551616",
    "\ufeff",
    "é",
    "\u2028",
    "😀",
  ]
)


@given(
  st.lists(PIECES, max_size=12).map("".join),
  st.sampled_from(['{"text": "%s"}', '{"x": %s, "text": "a"}', "%s"]),
  st.integers(-1, 60),
  st.integers(0, 255),
)
def test_orjson_never_changes_the_outcome(piece, form, place, byte):
  pytest.importorskip("orjson")
  data = bytearray((form % piece).encode())
  if 0 <= place < len(data):
    data[place] = byte

  def reference(data):
    return reference_texts(data, keys=["text"])

  fast = text_parser(["text"])
  assert outcome(fast, bytes(data)) == outcome(reference, bytes(data))
