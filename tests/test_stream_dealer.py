import numpy as np
import pytest
from listed_records import Listed, listed

from hpgrain.blend import StableBlend
from hpgrain.blended_records import BlendedRecords
from hpgrain.examples import Examples
from hpgrain.packing import PackingOptions
from hpgrain.record_batches import SharedTransforms
from hpgrain.sources.in_turn.window_shuffle import Epochs
from hpgrain.stream_counters import StreamCounters
from hpgrain.stream_dealer import StreamDealer
from hpgrain.stream_pieces import (
  BEGIN,
  BLOCK,
  COUNT,
  LENGTH,
  OFFSET,
  ORDINAL,
  RECORD,
  SOURCE,
  make_pieces,
)
from hpgrain.transforms.counters import Counters
from hpgrain.transforms.pretokenized import PretokenizedTransform


class Spy(PretokenizedTransform):
  """Notes how many records each call has."""

  def __init__(self, **options):
    super().__init__(labels_are_shifted=False, **options)
    self.calls = []

  def __call__(self, records, place):
    self.calls.append(len(records))
    return super().__call__(records, place)


def dealer(
  sources, transforms, *, firsts, num_streams=2, weights=None, **packing
):
  names = [source.name for source in sources]
  options = PackingOptions(**{"budget": 8, "overlong": "split", **packing})
  return StreamDealer(
    BlendedRecords(
      [
        Epochs(source, seed=0, shuffle_buffer_size=None, epochs=1)
        for source in sources
      ],
      names=names,
      weights=weights,
    ),
    SharedTransforms(transforms),
    names=names,
    num_streams=num_streams,
    firsts=firsts,
    options=options,
    vocab_size=None,
    counters=StreamCounters(names, budget=8, overlong=options.overlong),
  )


def tokens_of(dealt):
  """{stream: [(record, tokens)]}."""
  return {
    v: [
      (r, dealt.tokens[block].ids[b : b + n].tolist())
      for r, block, b, n in pieces[[RECORD, BLOCK, BEGIN, LENGTH]].T.tolist()
    ]
    for v, pieces in dealt.parts.items()
  }


def test_records_go_to_streams_in_turn():
  transform = Spy(max_seq_len=2)
  deal = dealer([listed("a", [2, 1, 0, 3])], [transform], firsts={0: 0, 1: 1})
  dealt = deal.deal(10)
  assert tokens_of(dealt) == {
    0: [(0, [0, 1])],
    1: [(1, [100]), (3, [300, 301]), (3, [302])],
  }
  pieces = dealt.parts[1]
  assert pieces[ORDINAL].tolist() == [0, 0, 1]
  assert pieces[COUNT].tolist() == [1, 2, 2]
  assert dealt.found
  assert deal.deal(10) is None


def test_only_what_a_held_stream_takes_is_tokenized():
  source, transform = listed("a", [2] * 8), Spy(max_seq_len=2)
  deal = dealer([source], [transform], firsts={1: 3})
  assert tokens_of(deal.deal(6)) == {1: [(3, [300, 301]), (5, [500, 501])]}
  assert source.taken == 2
  assert transform.calls == [2]


def test_equal_transforms_are_called_once_a_block():
  sources = [listed("a", [1] * 4), listed("b", [2] * 4), listed("c", [3] * 4)]
  transforms = [Spy(max_seq_len=4), Spy(max_seq_len=4), Spy(max_seq_len=5)]
  deal = dealer(sources, transforms, firsts={0: 0, 1: 1}, weights=[1, 1, 1])
  dealt = deal.deal(9)
  assert [t.calls for t in transforms] == [[6], [], [3]]
  found = {
    r: (int(s), int(n))
    for pieces in dealt.parts.values()
    for r, s, n in pieces[[RECORD, SOURCE, LENGTH]].T.tolist()
  }
  assert sorted(found) == list(range(9))
  assert sorted(found.values()) == sorted([(0, 1), (1, 2), (2, 3)] * 3)
  for pieces in dealt.parts.values():
    assert (np.diff(pieces[RECORD]) > 0).all()


def test_places_are_those_of_the_record_s_own_source():
  sources = [listed("a", [1] * 4), listed("b", [1] * 4)]
  sources[1].records[2] = {"input_ids": "text"}
  deal = dealer(
    sources, [Spy(max_seq_len=4)] * 2, firsts={0: 0, 1: 1}, weights=[1, 1]
  )
  with pytest.raises(ValueError, match="b, record 2: its field 'input_ids'"):
    deal.deal(8)


def test_looking_everywhere_deals_the_same():
  source = Listed(
    "a", [{"input_ids": [r]} if r % 2 else {"input_ids": []} for r in range(6)]
  )
  deal = dealer([source], [Spy(max_seq_len=4)], firsts={0: 0})
  dealt = deal.deal(4, everything=True)
  assert (dealt.parts, dealt.found) == ({}, True)
  assert source.taken == 4
  dealt = deal.deal(4)
  assert (dealt.parts, dealt.found) == ({}, False)


def test_weights_are_kept_for_those_that_have_them():
  sources = [Listed("a", [{"input_ids": [1, 2]}]), Listed(
    "b", [{"input_ids": [3, 4], "loss_mask": [0.5, 0]}])]  # fmt: skip
  deal = dealer(
    sources,
    [Spy(max_seq_len=4), Spy(max_seq_len=5)],
    firsts={0: 0, 1: 1},
    weights=[1, 1],
  )
  first, second = deal.deal(4).tokens
  assert first.ids.tolist() == first.labels.tolist() == [1, 2]
  assert first.weights is None
  assert second.ids.tolist() == [3, 4]
  assert second.labels.tolist() == [3, -100]
  assert second.weights.tolist() == [0.5, 0]


def test_each_stream_s_tokens_are_a_block_of_their_own():
  sources = [listed("a", [2, 9, 1, 3]), listed("b", [1] * 4)]
  deal = dealer(
    sources,
    [Spy(max_seq_len=9), Spy(max_seq_len=9)],
    firsts={1: 0, 2: 0},
    num_streams=3,
    weights=[1, 1],
    overlong="drop",
  )
  dealt = deal.deal(8)
  assert sorted(dealt.parts) == [1, 2]
  assert len(dealt.tokens) == 2
  for (v, pieces), tokens in zip(
    dealt.parts.items(), dealt.tokens, strict=True
  ):
    assert set(pieces[BLOCK].tolist()) == {v - 1}
    assert tokens.ids.base is None
    for r, begin, n in pieces[[RECORD, BEGIN, LENGTH]].T.tolist():
      source, k = StableBlend([1, 1]).locate(np.array([r]))
      assert (
        tokens.ids[begin : begin + n].tolist()
        == [100 * int(k[0]) + i for i in range([2, 9, 1, 3][k[0]])]
        if source[0] == 0
        else [100 * int(k[0])]
      )


def test_a_transform_returns_as_many_as_it_got():
  class Short:
    counters = Counters()
    identity = "short"

    def __call__(self, records, place):
      none = np.zeros(0, np.int32)
      return Examples(
        np.zeros(len(records), np.int64), np.zeros(1, np.int64), none, none
      )

  deal = dealer([listed("a", [1] * 4)], [Short()], firsts={0: 0, 1: 1})
  with pytest.raises(ValueError, match="the examples of as many, got those of"):
    deal.deal(3)


def test_examples_become_pieces():
  common = {"record": np.array([4, 4, 6]), "source": np.array([0, 0, 1])}
  splits = np.array([0, 3, 8, 10])
  pieces = make_pieces(splits, **common, limit=3, overlong="split")
  assert pieces[[RECORD, ORDINAL, COUNT]].tolist() == [
    [4, 4, 4, 6], [0, 1, 2, 0], [3, 3, 3, 1],
  ]  # fmt: skip
  assert pieces[[BEGIN, LENGTH, OFFSET]].tolist() == [
    [0, 3, 6, 8], [3, 3, 2, 2], [0, 0, 3, 0],
  ]  # fmt: skip
  dropped = make_pieces(splits, **common, limit=3, overlong="drop")
  assert dropped[[RECORD, ORDINAL, COUNT]].tolist() == [[4, 6], [0, 0], [1, 1]]
  whole = make_pieces(splits, **common, limit=None, overlong="error")
  assert whole[LENGTH].tolist() == [3, 5, 2]
  empty = make_pieces(
    np.array([0, 0, 8, 10]), **common, limit=None, overlong="error"
  )
  assert empty[[RECORD, ORDINAL, COUNT]].tolist() == [[4, 6], [0, 0], [1, 1]]
