"""docs/orders.md against the code: rows that are filled with whole examples."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from hpgrain import pack
from hpgrain.balance import balanced_order
from hpgrain.fields import FieldOptions
from hpgrain.mixes import plain_mix
from hpgrain.order import permutation_key, permute
from hpgrain.packed_windows import PackedWindows
from hpgrain.packing import PackingOptions
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.in_turn.numbered import NumberedInTurn
from hpgrain.streams import StreamRows
from hpgrain.transforms.pretokenized import PretokenizedTransform

_DOC = (Path(__file__).parents[1] / "docs/orders.md").read_text("utf-8")


def _vectors(name):
  (block,) = re.findall(rf"```json {name}\n(.*?)```", _DOC, re.DOTALL)
  return json.loads(block)


def _by_row(items, row_splits):
  ends = row_splits.tolist()
  return [items[a:b].tolist() for a, b in itertools.pairwise(ends)]


class _Examples:
  """Records that give an example each."""

  def __init__(self, *lengths):
    self.name = "a"
    self.num_records = len(lengths)
    self._lengths = np.array(lengths, np.int32)

  def examples(self, records):
    return records, np.ones(len(records), np.int64)

  def lengths(self, examples):
    return self._lengths[examples]

  def place(self, example):
    return f"a, record {example}"


def _windows(lengths, **options):
  options = PackingOptions(budget=10, **options)
  return PackedWindows(
    [_Examples(*lengths)], plain_mix(None, "no"), options, seed=0
  )


def test_best_fit_of_a_window_is_the_documents():
  for lengths, budget, expected in _vectors("best_fit"):
    packed = pack.best_fit_decreasing(lengths, budget=budget)
    assert _by_row(packed.items, packed.row_splits) == expected


def test_keys_of_windows_are_the_documents():
  for seed, window, expected in _vectors("window_key"):
    key = permutation_key(seed, "rows of window", window)
    assert key.hex() == expected


def test_windows_of_records_are_the_documents():
  windows = _windows([3, 6, 4, 2, 6, 1, 5, 0], plan_window=6)
  for i, expected in enumerate(_vectors("window_records")):
    assert windows.order.examples(6 * i, 6 * i + 6)[2].tolist() == expected
  for i, expected in enumerate(_vectors("window_rows")):
    window = windows.window(i)
    assert _by_row(window.example, window.row_splits) == expected


def test_rows_of_a_window_are_permuted_as_the_document_says():
  lengths = [3, 6, 4, 2, 6, 1, 5, 7, 9, 8]
  windows = _windows(lengths, plan_window=10)
  _, _, records, taken = windows.order.examples(0, 10)
  packed = pack.best_fit_decreasing(taken, budget=10)
  rows = _by_row(records[packed.items], packed.row_splits)
  key = permutation_key(0, "rows of window", 0)
  order = [permute(j, len(rows), key=key) for j in range(len(rows))]
  assert order != sorted(order)
  window = windows.window(0)
  assert _by_row(window.example, window.row_splits) == [rows[i] for i in order]


def test_balanced_shares_are_the_documents():
  for costs, shares, rows, expected in _vectors("shares"):
    order = balanced_order(np.array(costs), shares=shares, rows=rows)
    assert order.tolist() == expected


def test_packers_of_what_comes_are_the_documents():
  for packer, lengths, budget, waiting, expected in _vectors("arrival"):
    if packer == "first_fit":
      found = pack.first_fit(lengths, budget=budget, min_buffered=waiting)
    else:
      found = pack.best_fit(lengths, budget=budget, window=waiting)
    assert _by_row(found.items, found.row_splits) == expected


@pytest.mark.parametrize("held", [(0, 1), (0,), (1,)])
def test_streams_are_the_documents(held):
  lengths = [3, 6, 4, 2, 6, 1, 5, 5, 2, 7, 3, 4]
  records = [{"input_ids": [i] * n} for i, n in enumerate(lengths)]
  rows = StreamRows(
    [NumberedInTurn(InMemoryRecords(records, name="a"))],
    [PretokenizedTransform(max_seq_len=10, labels_are_shifted=False)],
    options=PackingOptions(budget=10),
    weights=None,
    seed=0,
    shuffle_buffer_size=None,
    epochs=1,
    num_streams=2,
    pack_window=3,
  )
  reader = rows.open(held)
  expected = _vectors("streams")
  for row in range(len(expected) + 2):
    if row % 2 not in held:
      continue
    opened = reader.rows([row])
    fields = opened.fields((0, 10), num_rows=1, options=FieldOptions())
    ids = fields["input_ids"][fields["segment_ids"] > 0]
    found = list(dict.fromkeys(ids.tolist()))
    assert found == (expected[row] if row < len(expected) else [])
  reader.close()
