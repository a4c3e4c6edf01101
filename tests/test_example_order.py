import numpy as np
import pytest
from test_packed_windows import Records

from hpgrain.example_order import ExampleOrder
from hpgrain.mixes import StableMix
from hpgrain.order import permutation_key, permute


def order_of(*sources, weights=None, seed=0, shuffle=False, epochs=None):
  return ExampleOrder(
    [Records(f"s{i}", records) for i, records in enumerate(sources)],
    StableMix(weights),
    seed=seed,
    shuffle=shuffle,
    epochs=epochs,
  )


def listed(order, begin, end):
  """(position, source, example, tokens) of each example."""
  columns = order.examples(begin, end)
  assert [c.dtype for c in columns] == [np.int64, np.int32, np.int64, np.int32]
  return list(zip(*(column.tolist() for column in columns), strict=True))


def test_examples_come_record_after_record():
  order = order_of([[5], [], [3, 0, 4]])
  assert listed(order, 0, 4) == [
    (0, 0, 0, 5), (2, 0, 1, 3), (2, 0, 2, 0), (2, 0, 3, 4), (3, 0, 0, 5),
  ]  # fmt: skip
  # Any part by itself.
  assert listed(order, 2, 3) == listed(order, 0, 4)[1:4]
  assert listed(order, 1, 2) == []
  assert order.end is None and order.clip(99) == 99


def test_sources_take_turns_as_the_mix_has_them():
  order = order_of([[1], [2]], [[3], [4]], weights=[2, 1], epochs=1)
  positions = [(source, example) for _, source, example, _ in listed(
    order, 0, order.end
  )]  # fmt: skip
  assert positions == [(0, 0), (1, 0), (0, 1)]
  assert order.counts(99).tolist() == [2, 1]
  assert order.clip(99) == order.end == 3


def test_records_are_permuted_every_epoch_anew():
  order = order_of([[i] for i in range(1, 8)], shuffle=True, seed=5)
  for epoch in (0, 1):
    key = permutation_key(5, "s0", epoch)
    expected = permute(np.arange(7), 7, key=key).tolist()
    found = [example for _, _, example, _ in listed(
      order, 7 * epoch, 7 * epoch + 7
    )]  # fmt: skip
    assert found == expected


def test_whether_there_is_a_token(monkeypatch):
  monkeypatch.setattr("hpgrain.example_order._LOOK_RECORDS", 2)
  assert not order_of([[0], [], [0, 0]]).has_tokens(None)
  assert order_of([[0], [], [0, 7]]).has_tokens(None)
  assert order_of([[0], [], [0, 7]]).has_tokens(7)
  assert not order_of([[0], [], [9, 7]]).has_tokens(6)
  assert order_of([[9]], [[], [2]]).has_tokens(6)


def test_a_source_without_a_record_is_not_drawn():
  assert order_of([], [[2]], epochs=1).end == 1
  with pytest.raises(
    ValueError,
    match=r"'s0' has no record to draw\. Leave it out of the blend.*data_config"
    r"\.split",
  ):
    order_of([], [[2]], weights=[1, 1])


def test_the_only_source_has_a_record():
  # No blend to leave it out of.
  with pytest.raises(ValueError, match=r"'s0' has no record\.$"):
    order_of([])
