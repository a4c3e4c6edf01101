import pickle

import numpy as np
import pytest
import reference_layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.context_layout import ContextLayout
from hpgrain.fields import FieldOptions
from hpgrain.packed_fields import clip_to_ranks, find_rooms, starts
from hpgrain.packed_samples import PackedSamples
from hpgrain.packed_windows import PackingOptions
from hpgrain.records import IGNORE_INDEX
from hpgrain.sources.indexed import IndexedWriter

NAMES = ("input_ids", "labels", "position_ids", "segment_ids", "loss_mask")


def write(folder, name, documents, dtype="uint16", cut=None):
  """A pair of documents, of sequences of at most `cut` tokens."""
  prefix = str(folder / name)
  with IndexedWriter(prefix, dtype=dtype) as writer:
    for document in documents:
      size = cut or max(len(document), 1)
      lengths = [
        min(size, len(document) - begin)
        for begin in range(0, len(document), size)
      ]
      writer.add_document(document, lengths)
    writer.finalize()
  return prefix


def packed(prefixes, *, budget=8, seed=0, packer="best_fit", **others):
  options = {
    name: others.pop(name)
    for name in ("overlong", "plan_window", "segment_multiple", "max_items")
    if name in others
  }
  return PackedSamples(
    prefixes,
    options=PackingOptions(budget=budget, packer=packer, **options),
    seed=seed,
    **others,
  )


def fields_of(samples, rows, window=None, num_rows=None, **options):
  window = window or (0, samples.seq_length)
  made = samples.open_rows(rows).fields(
    window, num_rows=num_rows or len(rows), options=FieldOptions(**options)
  )
  return {name: made[name].tolist() for name in NAMES}


def twin(samples, documents, row, **options):
  """One row's fields, a position at a time."""
  size = samples.seq_length
  plan = samples.plan_rows([row])
  ids, labels = [0] * size, [IGNORE_INDEX] * size
  segments, positions = [0] * size, [None] * size
  for segment, (source, example, offset, length, start) in enumerate(
    zip(
      plan.source, plan.example, plan.offset, plan.length, plan.start,
      strict=True,
    )
  ):  # fmt: skip
    document = documents[source][example]
    for i in range(length):
      ids[start + i] = document[offset + i]
      labels[start + i] = document[offset + i + samples.ahead]
      segments[start + i] = segment + 1
      positions[start + i] = i
  if options.get("reset_position_ids"):
    for p in range(size):
      if positions[p] is None:
        before = p and positions[p - 1] + 1 if not segments[p - 1] else 0
        positions[p] = before if p else 0
  else:
    positions = list(range(size))
  if not options.get("reset_attention_mask", True):
    segments = [int(s > 0) for s in segments]
  eod = options.get("eod_id") if options.get("eod_mask_loss") else None
  loss = [
    float(label >= 0 and id != eod)
    for id, label in zip(ids, labels, strict=True)
  ]
  return dict(zip(NAMES, (ids, labels, positions, segments, loss), strict=True))


def test_a_row_of_whole_documents(tmp_path):
  prefix = write(tmp_path, "a", [[1, 2, 9], [], [3, 4, 5, 9], [6, 9]])
  samples = packed([prefix], budget=7, shuffle=False, epochs=1)
  assert len(samples) == 1
  assert fields_of(samples, [0]) == {
    "input_ids": [[1, 2, 3, 4, 5, 6, 0]],
    "labels": [[2, 9, 4, 5, 9, 9, IGNORE_INDEX]],
    "position_ids": [[0, 1, 2, 3, 4, 5, 6]],
    "segment_ids": [[1, 1, 2, 2, 2, 3, 0]],
    "loss_mask": [[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]],
  }
  row = samples[0]
  assert row["tokens"].tolist() == [1, 2, 3, 4, 5, 6]
  assert row["labels"].tolist() == [2, 9, 4, 5, 9, 9]


def test_unshifted_labels_are_the_inputs(tmp_path):
  prefix = write(tmp_path, "a", [[1, 2, 9], [6, 9]])
  samples = packed(
    [prefix], budget=6, shuffle=False, epochs=1, labels_are_shifted=False
  )
  fields = fields_of(samples, [0], labels_are_shifted=False)
  assert fields["input_ids"] == [[1, 2, 9, 6, 9, 0]]
  assert fields["labels"] == [[1, 2, 9, 6, 9, IGNORE_INDEX]]


def test_no_label_is_lost_where_a_document_is_split(tmp_path):
  prefix = write(tmp_path, "a", [[1, 2, 3, 4, 5, 9]])
  samples = packed(
    [prefix], budget=2, overlong="split", shuffle=False, epochs=1
  )
  fields = fields_of(samples, range(3))
  pairs = {
    (i, label)
    for ids, labels in zip(fields["input_ids"], fields["labels"], strict=True)
    for i, label in zip(ids, labels, strict=True)
    if label >= 0
  }
  assert pairs == {(1, 2), (2, 3), (3, 4), (4, 5), (5, 9)}


def test_a_document_of_several_sequences_is_one(tmp_path):
  documents = [[1, 2, 3, 9], [], [4, 5, 9]]
  whole = packed([write(tmp_path, "a", documents)], epochs=1)
  cut = packed([write(tmp_path, "b", documents, cut=2)], epochs=1, names=["a"])
  assert fields_of(cut, [0]) == fields_of(whole, [0])
  assert sorted(cut.plan(0).length.tolist()) == [2, 3]


def test_a_split_ends_a_document_where_it_ends(tmp_path):
  # Four sequences of two tokens, in one document.
  prefix = write(tmp_path, "a", [[1, 2, 3, 4, 5, 6, 7, 8]], cut=2)
  for index, tokens in ((0, [1, 2, 3]), (1, [5, 6, 7])):
    samples = packed([prefix], split="1,1,0", split_index=index, epochs=1)
    assert samples[0]["tokens"].tolist() == tokens


def test_reports_count_documents(tmp_path):
  documents = [[1, 2, 3, 9], [], [4, 5, 9]]
  samples = packed([write(tmp_path, "a", documents, cut=2)], epochs=2)
  assert samples.has_row()
  assert samples.rows_per_source(len(samples)).tolist() == [6]
  assert [member.rows_per_pass for member in samples.members] == [3.0]
  assert samples.counters(len(samples))["sources"]["a"] == {
    "records": 6, "tokens_read": 10, "tokens": 10, "tokens_dropped": {},
  }  # fmt: skip
  assert samples.length_buckets == (8,) and samples.row_positions([0]) == 8
  assert samples.rows_per_epoch == 1
  assert samples.unique_identifiers["packing"]["epochs"] == 2


def test_pieces_begin_at_multiples():
  row_splits = np.array([0, 2, 2, 4], np.int64)
  length = np.array([3, 1, 4, 5], np.int32)
  assert starts(row_splits, length).tolist() == [0, 3, 0, 4]
  assert starts(row_splits, length, multiple=4).tolist() == [0, 4, 0, 4]


def test_an_epoch_holds_every_token_once(tmp_path):
  documents = [[10 * d + i for i in range(1, d % 5 + 3)] for d in range(20)]
  samples = packed(
    [write(tmp_path, "a", documents)], plan_window=6, epochs=2, seed=3
  )
  fields = fields_of(samples, range(len(samples)))
  found = sorted(
    i
    for ids, segments in zip(
      fields["input_ids"], fields["segment_ids"], strict=True
    )
    for i, segment in zip(ids, segments, strict=True)
    if segment
  )
  assert found == sorted(2 * [i for d in documents for i in d[:-1]])
  with pytest.raises(IndexError, match="rows, got row"):
    samples.plan_rows([len(samples)])
  with pytest.raises(ValueError, match="end after 2 epochs, not after 1"):
    samples.num_rows(1)


def test_what_is_wrong_is_said(tmp_path):
  prefix = write(tmp_path, "a", [[1, 2, 3, 9]])
  with pytest.raises(ValueError, match="at least one source"):
    packed([])
  with pytest.raises(ValueError, match="both named 'a'"):
    packed([prefix, prefix])
  with pytest.raises(ValueError, match="got 1 weights for 2 sources"):
    packed([prefix, prefix], names=["x", "y"], weights=[1])
  with pytest.raises(ValueError, match=r"'a', document 0: an example has 3"):
    packed([prefix], budget=2).plan(0)
  samples = packed([prefix], vocab_size=9)
  with pytest.raises(ValueError, match=r"'a', sequence 0, offset 3: .* id 9"):
    samples.open_rows([0]).fields((0, 8), num_rows=1, options=FieldOptions())


documents_lists = st.lists(
  st.lists(st.integers(1, 60000), max_size=7), min_size=1, max_size=12
)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_fields_follow_the_definition(tmp_path_factory, data):
  folder = tmp_path_factory.mktemp("corpora")
  corpora = data.draw(st.lists(documents_lists, min_size=1, max_size=3))
  corpora = [[[1, 2, 3], *documents] for documents in corpora]
  cuts = st.sampled_from([None, 1, 3])
  prefixes = [
    write(folder, f"c{i}", documents, cut=data.draw(cuts))
    for i, documents in enumerate(corpora)
  ]
  packer = data.draw(st.sampled_from(["best_fit", "first_fit", "concat"]))
  multiple = 1 if packer == "concat" else data.draw(st.sampled_from([1, 2, 4]))
  samples = packed(
    prefixes,
    packer=packer,
    overlong="split",
    segment_multiple=multiple,
    plan_window=data.draw(st.integers(1, 9)),
    seed=data.draw(st.integers(0, 5)),
    epochs=data.draw(st.sampled_from([None, 1, 2])),
    labels_are_shifted=data.draw(st.booleans()),
    weights=data.draw(st.sampled_from([None, [1] * len(corpora)])),
  )
  rows = range(min(len(samples), 6))
  options = {
    "reset_position_ids": data.draw(st.booleans()),
    "reset_attention_mask": data.draw(st.booleans()),
    "eod_mask_loss": True,
    "eod_id": 2,
  }
  whole = fields_of(samples, rows, num_rows=len(rows) + 1, **options)
  for place, row in enumerate(rows):
    expected = twin(samples, corpora, row, **options)
    for name in NAMES:
      assert whole[name][place] == expected[name], name
  assert whole["segment_ids"][-1] == [0] * samples.seq_length
  # Any windows of the same rows, in another process.
  other = pickle.loads(pickle.dumps(samples))
  cut = data.draw(st.integers(0, samples.seq_length))
  for window in ((0, cut), (cut, samples.seq_length)):
    part = fields_of(other, rows, window=window, **options)
    for name in NAMES:
      assert part[name] == [
        values[window[0] : window[1]] for values in whole[name][:-1]
      ]


def test_rooms_have_the_padding_behind_them(tmp_path):
  documents = [[1, 2, 3, 9], [4, 5, 6, 7, 9], [8, 8, 9]]
  samples = packed(
    [write(tmp_path, "a", documents)],
    budget=12,
    segment_multiple=4,
    shuffle=False,
    epochs=1,
    plan_window=1,
  )
  plans = samples.plan_rows([0, 1, 2])
  assert plans.length.tolist() == [3, 4, 2]
  rooms = find_rooms(plans, 16, multiple=4)
  assert rooms.row_splits.tolist() == [0, 2, 4, 6]
  assert rooms.length.tolist() == [4, 12, 4, 12, 4, 12]
  # A full row has none, but a room of no positions.
  assert find_rooms(plans, 4, multiple=4).length.tolist() == [4, 0] * 3


def test_parts_of_pieces_that_ranks_hold(tmp_path):
  # Positions 0..6 of a document in a room of 8, and 0..1 in one of 4.
  documents = [[1, 2, 3, 4, 5, 6, 7, 9], [8, 8, 9]]
  samples = packed(
    [write(tmp_path, "a", documents)],
    budget=12,
    segment_multiple=4,
    shuffle=False,
    epochs=1,
  )
  plans = samples.plan_rows([0])
  assert plans.length.tolist() == [7, 2]
  context = ContextLayout("document_zigzag", 2, 4)

  def parts(*ranks):
    found = clip_to_ranks(plans, context, ranks)
    assert [array.dtype for array in found] == [np.int64, np.int64, np.int32]
    return list(zip(*(array.tolist() for array in found), strict=True))

  # (piece, positions before, positions): chunks 0 and 3, then 1 and 2.
  assert parts(0) == [(0, 0, 2), (0, 6, 1), (1, 0, 1)]
  assert parts(1) == [(0, 2, 2), (0, 4, 2), (1, 1, 1)]
  assert parts(0, 1) == sorted([*parts(0), *parts(1)])


def test_ids_that_no_rank_here_holds_are_not_read(tmp_path):
  documents = [[1, 2, 3, 4, 5, 6, 7, 9], [11, 12, 9]]
  samples = packed(
    [write(tmp_path, "a", documents)],
    budget=12,
    segment_multiple=4,
    shuffle=False,
    epochs=1,
  )
  made = samples.open_rows([0]).fields_of_ranks(
    ContextLayout("document_zigzag", 2, 4),
    frozenset([0]),
    num_positions=12,
    num_rows=1,
    options=FieldOptions(),
  )
  # Rank 0 has positions 0, 1, 6, 7 of the first room, 8 and 11 of the other;
  # the token after a chunk is its last label, and an id as well.
  assert made["input_ids"].tolist() == [[1, 2, 3, 0, 0, 0, 7, 0, 11, 12, 0, 0]]
  labels = made["labels"][0]
  assert labels[[0, 1, 6, 8]].tolist() == [2, 3, 9, 12]
  assert labels[[7, 11]].tolist() == [IGNORE_INDEX] * 2
  assert made["segment_ids"].tolist() == [[1] * 7 + [0] + [2] * 2 + [0] * 2]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_ranks_together_hold_the_fields_of_whole_rows(tmp_path_factory, data):
  folder = tmp_path_factory.mktemp("corpora")
  documents = [[1, 2, 3], *data.draw(documents_lists)]
  ranks = data.draw(st.sampled_from([1, 2, 3, 4, 8]))
  multiple = 2 * ranks * data.draw(st.sampled_from([1, 2]))
  budget = multiple * data.draw(st.integers(1, 4))
  samples = packed(
    [write(folder, "a", documents)],
    budget=budget,
    overlong="split",
    segment_multiple=multiple,
    seed=data.draw(st.integers(0, 5)),
    epochs=1,
  )
  rows = range(min(len(samples), 4))
  options = FieldOptions(
    reset_position_ids=data.draw(st.booleans()), eod_mask_loss=True, eod_id=2
  )
  # The mesh may ask for more positions than a row has.
  length = budget + 2 * ranks * data.draw(st.integers(0, 2))
  context = ContextLayout("document_zigzag", ranks, multiple)
  opened = samples.open_rows(rows)
  num_rows = len(rows) + 1
  whole = opened.fields((0, length), num_rows=num_rows, options=options)
  want = reference_layouts.in_slots(
    whole, "document_zigzag", ranks, multiple=multiple
  )
  each = length // ranks
  order = context.order_of_rows(
    find_rooms(opened.plans, length, multiple=multiple), length
  )
  for rank in range(ranks):
    made = opened.fields_of_ranks(
      context,
      frozenset([rank]),
      num_positions=length,
      num_rows=num_rows,
      options=options,
    )
    held = slice(rank * each, (rank + 1) * each)
    for name in NAMES:
      found = np.take_along_axis(made[name][:-1], order[:, held], axis=1)
      assert np.array_equal(found, want[name][:-1, held]), name
