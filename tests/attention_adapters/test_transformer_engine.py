"""TransformerEngine's inputs, through NumPy that reads them as it says."""

import sys
import types

import interpreters
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import (
  LENGTH,
  ONE_EACH,
  WINDOW,
  inputs_of,
  layout_of,
  mask_of,
  rows_of,
)

from hpgrain.attention_adapters import transformer_engine
from hpgrain.attention_inputs import AttentionInputs
from hpgrain.context_layout import ContextLayout

_LAYOUTS = ("contiguous", "zigzag", "striped", "document_zigzag")


def _seen(params, window=None):
  ids, positions = params["segment_ids"], params["segment_pos"]
  return interpreters.ids_and_positions(
    *map(np.asarray, (*ids, *positions)),
    window=transformer_engine.window_size(window),
  )


def _differs(seen, inputs):
  real = np.asarray(inputs.segment_ids) > 0
  return (seen[real] != mask_of(inputs)[real]).any()


@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("ranks", [1, 2])
def test_ids_and_positions_are_the_dense_mask(ranks, window):
  inputs = inputs_of(layout_of("striped", ranks), window=window)
  params = transformer_engine.adapt(inputs)
  assert set(params) == {"segment_ids", "segment_pos"}
  seen = _seen(params, window)
  assert not _differs(seen, inputs)
  # Nothing is at padding, neither query nor key.
  padding = np.asarray(inputs.segment_ids) == 0
  assert not seen[padding].any()
  assert not seen.swapaxes(1, 2)[padding].any()


def _of_row(layout, ids):
  ids = np.array([ids], np.int32)[:, layout.order(len(ids))]
  return AttentionInputs(
    segment_ids=jnp.asarray(ids),
    position_ids=jnp.asarray(ids),
    layout=layout,
    max_segments=5,
    sliding_window=None,
  )


def test_a_row_written_out():
  inputs = _of_row(ContextLayout("striped", 2), [1, 1, 1, 0, 2, 2, 0, 0])
  params = jax.jit(lambda: transformer_engine.adapt(inputs))()
  for ids in params["segment_ids"]:
    assert ids.tolist() == [[1, 1, 2, 0, 1, 0, 2, 0]]
  for positions in params["segment_pos"]:
    assert positions.dtype == np.int32
    found = np.asarray(positions)[0, [0, 4, 1, 2, 6]]
    assert found.tolist() == [0, 1, 2, 0, 1]
  whole = _of_row(ContextLayout(), [1, 1, 1, 0, 2, 2, 0, 0])
  made = transformer_engine.seqlens_and_offsets(whole)
  for seqlens, offsets in zip(*made.values()):
    assert seqlens.tolist() == [[3, 2, -1, -1, -1]]
    assert offsets.tolist() == [[0, 4, -1, -1, -1, -1]]


@pytest.mark.parametrize("bug", ["segments", "positions", "window", "slots"])
def test_wrong_ids_and_positions_are_seen(bug):
  inputs = inputs_of(layout_of("striped", 2), window=WINDOW)
  params = transformer_engine.adapt(inputs)
  window = WINDOW
  slots = np.broadcast_to(np.arange(LENGTH), (2, LENGTH))
  if bug == "segments":
    ids = jnp.ones_like(inputs.segment_ids)
    params["segment_ids"] = (ids, ids)
  elif bug == "positions":
    q, k = params["segment_pos"]
    params["segment_pos"] = (q, k + 1)
  elif bug == "window":
    window = WINDOW + 1
  else:
    params["segment_pos"] = (slots, slots)
  assert _differs(_seen(params, window), inputs)


@pytest.mark.parametrize("window", [None, WINDOW])
def test_lengths_and_offsets_are_the_dense_mask(window):
  inputs = inputs_of(window=window)
  params = transformer_engine.seqlens_and_offsets(inputs)
  seen = _by_offsets(params, window)
  assert not _differs(seen, inputs)
  assert not seen[rows_of() == 0].any()


def _by_offsets(params, window):
  return interpreters.offsets(
    *map(np.asarray, (*params["seqlens"], *params["seq_offsets"])),
    length=LENGTH,
    window=window,
    smallest=1,
  )


@pytest.mark.parametrize("bug", ["not filled", "late", "ends", "window"])
def test_wrong_lengths_and_offsets_are_seen(bug):
  inputs = inputs_of(window=WINDOW)
  made = transformer_engine.seqlens_and_offsets(inputs)
  seqlens, offsets = (np.array(made[name][0]) for name in made)
  window = WINDOW + 1 if bug == "window" else WINDOW
  if bug == "not filled":
    offsets = np.where(offsets < 0, 0, offsets)
  elif bug == "late":
    offsets[offsets >= 0] += 1
  elif bug == "ends":
    # As an older page has it: the end of the last segment is listed too.
    offsets[0, 3] = 234
  params = {"seqlens": (seqlens,) * 2, "seq_offsets": (offsets,) * 2}
  try:
    seen = _by_offsets(params, window)
  except AssertionError:
    return  # It would read what is not its own.
  assert _differs(seen, inputs)


@pytest.mark.parametrize("window", [None, WINDOW])
def test_lengths_of_one_segment_are_the_dense_mask(window):
  inputs = inputs_of(lengths=ONE_EACH, window=window, max_segments=2)
  params = transformer_engine.adapt(inputs)
  assert [x.tolist() for x in params["seqlens"]] == [[201, 256]] * 2
  size = None if window is None else transformer_engine.window_size(window)
  seen = interpreters.lengths(*params["seqlens"], length=LENGTH, window=size)
  assert not _differs(seen, inputs)


@pytest.mark.parametrize("name, ranks", [("contiguous", 1), ("zigzag", 2)])
def test_a_row_of_two_segments_is_not_taken_for_one(name, ranks):
  inputs = inputs_of(
    layout_of(name, ranks), lengths=((101, 61), (201,)), max_segments=2
  )
  params = transformer_engine.adapt(inputs)
  assert [x.tolist() for x in params["seqlens"]] == [[0, 201]] * 2
  assert not interpreters.lengths(*params["seqlens"], length=LENGTH)[0].any()


def test_a_row_of_too_many_segments_is_in_none():
  """The first row has 4 segments with its padding, the second 3."""
  params = transformer_engine.seqlens_and_offsets(inputs_of(max_segments=3))
  for seqlens, offsets in zip(*params.values()):
    assert seqlens.tolist() == [[-1] * 3, [117, 130, -1]]
    assert offsets.tolist() == [[-1] * 4, [0, 120, -1, -1]]
  seen = _by_offsets(params, None)
  assert not seen[0].any() and seen[1].any()


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_orders_are_transformer_engines(ranks):
  row = np.arange(64)
  zigzag, striped = (
    ContextLayout(name, ranks).order(64) for name in ("zigzag", "striped")
  )
  assert (interpreters.dual_chunk_swap(row, ranks) == zigzag).all()
  assert (interpreters.striped(row, ranks) == striped).all()
  # Wider stripes are no layout of ours.
  assert (interpreters.striped(row, ranks, 2) != striped).any()


@pytest.mark.parametrize("name", _LAYOUTS)
def test_packed_rows_over_cp_are_striped(name):
  inputs = inputs_of(layout_of(name, 2))
  if name == "striped":
    transformer_engine.adapt(inputs)
    return
  said = rf"over cp=2 in layout '{name}': .* up to 5 segments\) in the striped"
  with pytest.raises(ValueError, match=said):
    transformer_engine.adapt(inputs)


def _one(name, ranks):
  layout = ContextLayout(name, ranks, 2 * ranks)
  ids = jnp.ones((1, 24 * ranks), jnp.int32)
  return AttentionInputs(ids, ids, layout, 2, None)


@pytest.mark.parametrize(
  "name, names",
  [
    ("contiguous", {"seqlens"}),
    ("zigzag", {"seqlens"}),
    ("striped", {"segment_ids", "segment_pos"}),
  ],
)
def test_one_segment_a_row_is_served_in_the_layouts_there_are(name, names):
  assert set(transformer_engine.adapt(_one(name, 2))) == names


def test_one_segment_a_row_has_limits_too():
  with pytest.raises(ValueError, match="'document_zigzag': Transf"):
    transformer_engine.adapt(_one("document_zigzag", 2))
  with pytest.raises(ValueError, match=r"cp=3 in layout 'zigzag': .* even num"):
    transformer_engine.adapt(_one("zigzag", 3))
  said = "'transformer_engine' needs whole rows, .* cp=2"
  with pytest.raises(ValueError, match=said):
    transformer_engine.seqlens_and_offsets(inputs_of(layout_of("striped", 2)))


def test_windows_written_out():
  assert transformer_engine.window_size(None) == (-1, -1)
  assert transformer_engine.window_size(3) == (2, 0)
  assert transformer_engine.window_size(3, "reference") == (3, 0)


class _Descriptor:
  """What TransformerEngine's class is called with."""

  @classmethod
  def from_segment_ids_and_pos(cls, segment_ids, segment_pos):
    return "ids", segment_ids, segment_pos

  @classmethod
  def from_seqlens_and_offsets(cls, seqlens, seq_offsets):
    return "offsets", seqlens, seq_offsets

  @classmethod
  def from_seqlens(cls, seqlens):
    return "lengths", seqlens


class _Older(_Descriptor):
  @classmethod
  def from_segment_ids_and_pos(
    cls, segment_ids, segment_pos=None, *, is_thd, is_segment_ids_reordered
  ):
    return is_thd, is_segment_ids_reordered


def _install(monkeypatch, descriptor):
  module = types.ModuleType("transformer_engine.jax.attention")
  module.SequenceDescriptor = descriptor
  for name in ("transformer_engine", "transformer_engine.jax"):
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
  monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_descriptor_is_made_by_the_factory_that_fits(monkeypatch):
  _install(monkeypatch, _Descriptor)
  make = transformer_engine.sequence_descriptor
  inputs = inputs_of()
  ids = transformer_engine.adapt(inputs)
  assert make(ids) == ("ids", ids["segment_ids"], ids["segment_pos"])
  offsets = transformer_engine.seqlens_and_offsets(inputs)
  assert make(offsets) == ("offsets", *offsets.values())
  lengths = transformer_engine.adapt(_one("zigzag", 2))
  assert make(lengths) == ("lengths", lengths["seqlens"])


def test_versions_that_ask_are_told_of_the_order(monkeypatch):
  _install(monkeypatch, _Older)
  layout = layout_of("striped", 2)
  params = transformer_engine.adapt(inputs_of(layout))
  make = transformer_engine.sequence_descriptor
  assert make(params, layout) == (True, True)
  assert make(params) == (True, False)
