"""Texts of JSON, flags of characters, stored ids: kernels and their twins."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain import _kernels
from hpgrain.tools.readers.bad_text import BadTextError
from hpgrain.tools.readers.json_texts import reference_texts


def read(block, keys=("text",)):
  """[(start, line, texts or None)] of a block."""
  starts, stops, found, columns = _kernels.json_texts(block, list(keys))
  assert [len(splits) for _, splits in columns] == [len(starts) + 1] * len(keys)
  for data, splits in columns:
    assert splits[0] == 0
    assert splits[-1] == len(data)
  records = []
  for i, (start, stop) in enumerate(zip(starts, stops)):
    texts = tuple(
      bytes(data[splits[i] : splits[i + 1]]).decode()
      for data, splits in columns
    )
    assert found[i] or not any(texts)
    records.append(
      (start, bytes(block[start:stop]), texts if found[i] else None)
    )
  return records


def twin(block, keys=("text",)):
  records, start = [], 0
  for line in bytes(block).split(b"\n"):
    if line and not line.isspace():
      try:
        texts = reference_texts(line, keys=keys)
      except BadTextError:
        texts = None
      records.append((start, line, texts))
    start += len(line) + 1
  return records


PLAIN = [
  b'{"text": "a"}',
  b' {\t"text"\r:"0123456789abcdef" } \r',
  '{"text": "été 中文 🙂 \x7f\u2028"}'.encode(),
  b'{"text": "\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u00e9\\uFFFF\\ud83d\\uDE42"}',
  b'{"id": -10.5e+3, "x": [1, {"y": [[], {}, "]}"]}, null], "text": ""}',
  b'{"text": 1e5, "text": "b"}'.replace(b"1e5", b'"longer than b"'),
  b'{"a": true, "b": false, "text": "x", "c": 0, "d": -0.0, "e": 1E-2}',
  b'{"\\u0061": "\\u00e9\\ud83d\\ude00 \\n", "text": "a"}'.replace(
    b"\\u0061", b"k"
  ),
  b'{"text": "' + b"x" * 3000 + b"\\n" * 50 + b'"}',
]


@pytest.mark.parametrize("line", PLAIN)
def test_plain_objects_are_found(line):
  assert read(line) == twin(line)
  assert read(line)[0][2] is not None


@pytest.mark.parametrize(
  "line",
  [
    b"{}",
    b"[]",
    b'"text"',
    b'{"text": null}',
    b'{"text": 5, "text": "a"}',
    b'{"text": "a"} x',
    b'{"text": "a",}',
    b'{"text": "a"',
    b'{"text": "a',
    b'{"text": "a\\',
    b'{"text": "a\\"}',
    b'{"text": "\\x"}',
    b'{"text": "\\u12g4"}',
    b'{"text": "\\ud83d"}',
    b'{"text": "\\ud83d\\u0041"}',
    b'{"text": "\\udc00\\ud83d"}',
    b'{"text": "\x01"}',
    b'{"text": "\xff"}',
    b'{"text": "\xc0\x80"}',
    b'{"text": "\xe0\x80\x80"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "\xf4\x90\x80\x80"}',
    b'{"text": "\xf0\x9f\x99',
    b'{"x": 01, "text": "a"}',
    b'{"x": 00, "text": "a"}',
    b'{"x": 1., "text": "a"}',
    b'{"x": +1, "text": "a"}',
    b'{"x": -, "text": "a"}',
    b'{"x": 1e, "text": "a"}',
    b'{"x": nul, "text": "a"}',
    b'{"x": [1,], "text": "a"}',
    b'{"x": [}, "text": "a"}',
    b'{"x": {"a"}, "text": "a"}',
    b'{"x": {1: 2}, "text": "a"}',
    b'{"x": "\\ud83d", "text": "a"}',
    b'{"x": NaN, "text": "a"}',
    b'{"x": ' + b"9" * 700 + b', "text": "a"}',
    b'{"x": ' + b"[" * 70 + b"]" * 70 + b', "text": "a"}',
    b'{"te\\u0078t": "a"}',
    b"\xef\xbb\xbf" + PLAIN[0],
  ],
)
def test_what_is_in_doubt_is_left_to_the_reference(line):
  block = b"\n".join([PLAIN[0], line, PLAIN[0]])
  assert [texts for _, _, texts in read(block)] == [("a",), None, ("a",)]


def test_lines_are_placed_and_blank_ones_are_no_records():
  block = b"\n \r\n" + PLAIN[0] + b"\r\n\x0b\x0c\n\n" + PLAIN[1] + b"\nx"
  assert read(block) == twin(block)
  assert [start for start, _, _ in read(block)] == [4, 23, 57]
  for empty in (b"", b"\n", b" \n\t"):
    assert read(empty) == []


def test_several_keys_and_kinds_of_bytes():
  block = b'{"b": "1", "a": "2"}\n{"a": "3"}\n{"a": "4", "b": "5", "a": ""}'
  for made in (bytes, bytearray, memoryview):
    assert [texts for _, _, texts in read(made(block), ("a", "b"))] == [
      ("2", "1"),
      None,
      ("", "5"),
    ]


@pytest.mark.parametrize(
  ("keys", "message"),
  [([], "1 to 64 keys, got 0"), (["a"] * 2, "key 1 is key 0 again")],
)
def test_wrong_keys_are_refused(keys, message):
  with pytest.raises(ValueError, match=message):
    _kernels.json_texts(b"", keys)
  with pytest.raises(ValueError, match="without gaps"):
    _kernels.json_texts(memoryview(b"abcd")[::2], ["a"])


PIECES = st.sampled_from(
  [
    *'{}[]":,\\ \t\r\n\x00\x0b\x1f\x7f/-+.eE0123456789',
    "null",
    "true",
    "false",
    "NaN",
    '"text"',
    '"text":',
    '{"text":"a"',
    "\\u",
    "\\n",
    "\\ud83d",
    "\\ude42",
    "\\u0000",
    "1e400",
    "\ufeff",
    "é",
    "中",
    "😀",
    "0123456789",
  ]
)


@settings(max_examples=400)
@given(
  st.lists(PIECES, max_size=14).map("".join),
  st.sampled_from(['{"text": "%s"}', '{"x": %s, "text": "a"}', "%s"]),
  st.integers(-1, 60),
  st.integers(0, 255),
)
def test_what_is_found_is_the_references(piece, form, place, byte):
  data = bytearray((form % piece).encode())
  if 0 <= place < len(data):
    data[place] = byte
  for got, expected in zip(read(data), twin(data), strict=True):
    assert got[:2] == expected[:2]
    if got[2] is not None:
      assert got[2] == expected[2]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_any_text_is_found_however_it_is_written(texts):
  for ascii_only in (True, False):
    lines = [
      json.dumps({"id": i, "text": text}, ensure_ascii=ascii_only)
      for i, text in enumerate(texts)
    ]
    found = read("\n".join(lines).encode())
    assert [text for _, _, text in found] == [(text,) for text in texts]


def flat(texts):
  encoded = [text.encode() for text in texts]
  data = np.frombuffer(b"".join(encoded), np.uint8)
  return data, np.cumsum([0, *map(len, encoded)], dtype=np.int64)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_flags_are_those_of_the_characters_beyond_ascii(texts):
  table = (np.arange(0x110000) % 251).astype(np.uint8)
  expected = [
    np.bitwise_or.reduce([0, *(ord(c) % 251 for c in text if ord(c) > 127)])
    for text in texts
  ]
  flags = _kernels.text_flags(*flat(texts), table)
  assert flags.dtype == np.uint8
  assert flags.tolist() == expected


def test_flags_of_wrong_arguments():
  table = np.zeros(0x110000, np.uint8)
  data, splits = flat(["aé", "b"])
  for wrong, message in (
    ([0, 5, 4], "must ascend to at most 4, got 5"),
    ([0, 3], "end at 3, but there are 4 bytes"),
    ([1, 4], "begin at 1 instead of 0"),
    ([], "must have a place"),
    ([0, 2, 4], "not UTF-8"),
  ):
    with pytest.raises(ValueError, match=message):
      _kernels.text_flags(data, np.array(wrong, np.int64), table)
  with pytest.raises(ValueError, match="must have 1114112 flags, got 5"):
    _kernels.text_flags(data, splits, table[:5])


def stored_twin(ids, splits, special, eod_id, dtype):
  rows = [ids[a:b].tolist() for a, b in itertools.pairwise(splits)]
  ended = [[*row, eod_id] if row and eod_id >= 0 else row for row in rows]
  return (
    np.array([i for row in ended for i in row], dtype),
    [len(row) for row in ended],
    [bool(set(row) & set(special)) for row in rows],
  )


@given(
  st.lists(st.lists(st.integers(0, 299), max_size=40), max_size=6),
  st.sets(st.integers(0, 299), max_size=6),
  st.integers(-1, 299),
  st.sampled_from([np.uint16, np.int32]),
  st.integers(0, 3),
)
def test_stored_ids_have_eods_and_special_texts_are_told(
  rows, special, eod_id, dtype, before
):
  ids = np.array([0] * before + [*itertools.chain(*rows)] + [299], np.uint32)
  splits = before + np.cumsum([0, *map(len, rows)], dtype=np.int64)
  out, lengths, found = _kernels.store_ids(
    ids,
    splits,
    np.array(sorted(special), np.uint32),
    300,
    eod_id,
    np.dtype(dtype).itemsize,
  )
  expected = stored_twin(ids, splits, special, eod_id, dtype)
  assert out.dtype == dtype
  assert out.tolist() == expected[0].tolist()
  assert (lengths.tolist(), found.tolist()) == expected[1:]


def test_stored_ids_reach_the_ends_of_their_dtype():
  splits = np.array([0, 2])
  none = np.zeros(0, np.uint32)
  for last, item_size in ((2**16 - 1, 2), (2**31 - 1, 4)):
    ids = np.array([0, last], np.uint32)
    out, _, _ = _kernels.store_ids(ids, splits, none, last + 1, -1, item_size)
    assert out.tolist() == [0, last]
    with pytest.raises(ValueError, match=f"gave the id {last}, but its"):
      _kernels.store_ids(ids, splits, none, last, -1, item_size)
    with pytest.raises(ValueError, match=f"vocab_size must be 0 to {last + 1}"):
      _kernels.store_ids(ids, splits, none, last + 2, -1, item_size)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"splits": [0, 3, 2]}, "must ascend to at most 3, got 2 after 3"),
    ({"splits": [0, 4]}, "must ascend to at most 3, got 4"),
    ({"splits": [-1, 2]}, "begin at -1"),
    ({"splits": []}, "must have a place"),
    ({"special": [2, 1]}, "special ids must ascend"),
    ({"eod_id": 9}, "EOD id 9 is outside the vocabulary of 9 ids"),
    ({"eod_id": -2}, "EOD id -2"),
    ({"item_size": 3}, "item_size must be 2 or 4, got 3"),
    ({"vocab_size": 3}, "gave the id 7, but its vocabulary has 3 ids"),
  ],
)
def test_wrong_ids_and_arguments_are_refused(change, message):
  arguments = {
    "ids": [5, 7, 1],
    "splits": [0, 3],
    "special": [1],
    "vocab_size": 9,
    "eod_id": -1,
    "item_size": 2,
  } | change
  for name, dtype in (
    ("ids", np.uint32),
    ("splits", np.int64),
    ("special", np.uint32),
  ):
    arguments[name] = np.array(arguments[name], dtype)
  with pytest.raises(ValueError, match=message):
    _kernels.store_ids(**arguments)
