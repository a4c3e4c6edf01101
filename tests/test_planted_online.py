"""Bugs planted in what tokenizes while training: the promise finds every one.

Each is a mistake that is easily made. It is planted by replacing one function;
a small run is to find it, and to pass without it.
"""

import dataclasses

import numpy as np
import pytest
from online_data import SourceRecipe
from online_recipes import Leg, Mismatch, Recipe
from promise import Leg as MeshLeg
from promise import Mismatch as MeshMismatch
from promise_build import Config, check_build
from promise_online import check
from reference_online import Transform
from reference_packers import Packing
from test_planted_bugs import OF_LAYOUTS

from hpgrain import (
  example_order,
  packed_windows,
  packing,
  stream_dealer,
  stream_packer,
  stream_reader,
)
from hpgrain.sources.in_turn import window_shuffle


def epoch_left_out_of_the_key(patch):
  """Every epoch has the order of the first."""
  permutation_key = example_order.permutation_key
  patch.setattr(
    example_order,
    "permutation_key",
    lambda seed, name, epoch: permutation_key(seed, name, 0),
  )


def rows_of_a_window_as_they_were_packed(patch):
  """The longest examples of a window come first."""
  patch.setattr(
    packed_windows, "permute", lambda index, size, *, key: np.asarray(index)
  )


def a_window_sought_is_the_first(patch):
  """A run that goes on takes a window's rows from its beginning."""
  seek = packed_windows.PackedWindows.seek
  patch.setattr(
    packed_windows.PackedWindows,
    "seek",
    lambda self, window, first_row: seek(self, window, first_row + 1),
  )


def room_is_not_rounded(patch):
  """Packers see lengths, and segments take more."""
  rows = packing._rows
  patch.setattr(
    packing,
    "_rows",
    lambda room, options: rows(np.maximum(room - 1, 0), options),
  )


def windows_of_every_epoch_alike(patch):
  """A buffer is shuffled the same way in every epoch."""
  bucket_key = window_shuffle.bucket_key
  patch.setattr(
    window_shuffle,
    "bucket_key",
    lambda seed, name, epoch, window: bucket_key(seed, name, 0, window),
  )


def records_by_their_place_among_those_held(patch):
  """Streams are dealt what their process reads, not what is theirs."""
  by_stream = stream_dealer.StreamDealer._by_stream

  def planted(self, tables):
    parts = by_stream(self, tables)
    held = sorted(parts)
    return dict(zip(held, [parts[v] for v in held[::-1]], strict=True))

  patch.setattr(stream_dealer.StreamDealer, "_by_stream", planted)


def used_pieces_are_forgotten(patch):
  """A state says where a stream is, not which pieces are in rows already."""
  find = stream_packer.StreamPacker._find
  patch.setattr(
    stream_packer.StreamPacker,
    "_find",
    lambda self: dataclasses.replace(find(self), used=0),
  )


def the_lookahead_is_forgotten(patch):
  """After a resume a packer may not have seen what it had seen."""
  find = stream_packer.StreamPacker._find
  patch.setattr(
    stream_packer.StreamPacker,
    "_find",
    lambda self: dataclasses.replace(find(self), arrived=0, used=0),
  )


def sources_go_on_where_they_were_read_to(patch):
  """A state has the sources' places, those of records that wait forgotten."""
  patch.setattr(
    stream_reader.StreamReader,
    "_place_before",
    lambda self, oldest: self._blended.position(),
  )


def rows_between_are_not_made(patch):
  """A stream gives its next row, whichever is asked for."""
  row = stream_reader.StreamReader._row

  def planted(self, number):
    stream = number % self._num_streams
    turn = self._packer(stream).num_rows
    return row(self, turn * self._num_streams + stream)

  patch.setattr(stream_reader.StreamReader, "_row", planted)


PLANS = Recipe(
  mode="plans",
  transform=Transform("pretokenized", max_seq_len=8),
  sources=(
    SourceRecipe("pretokenized", 1, 12, weight=2.0),
    SourceRecipe("pretokenized", 2, 5, weight=1.0),
  ),
  packing=Packing(budget=16, segment_multiple=4),
  plan_window=9,
)
STREAMS = dataclasses.replace(
  PLANS,
  mode="streams",
  packing=Packing(budget=16, segment_multiple=1, pack_window=5),
  num_streams=4,
  buffer=5,
)
OF_PLANS = (
  epoch_left_out_of_the_key,
  rows_of_a_window_as_they_were_packed,
  a_window_sought_is_the_first,
  room_is_not_rounded,
)
OF_STREAMS = (
  windows_of_every_epoch_alike,
  records_by_their_place_among_those_held,
  used_pieces_are_forgotten,
  the_lookahead_is_forgotten,
  sources_go_on_where_they_were_read_to,
  rows_between_are_not_made,
)
# Two processes, whose rows are of other streams as batches do not divide them.
LEGS = (
  Leg(batch_size=6, num_batches=2, row_parts=2, owners=(0, 1)),
  Leg(batch_size=4, num_batches=2, row_parts=2, owners=(1, 0)),
  Leg(batch_size=5, num_batches=2),
)


@pytest.mark.parametrize(
  ("recipe", "plant"),
  [
    *((PLANS, plant) for plant in OF_PLANS),
    *((STREAMS, plant) for plant in OF_STREAMS),
  ],
  ids=lambda value: getattr(value, "__name__", None),
)
def test_a_small_run_finds(recipe, plant, tmp_path):
  with pytest.MonkeyPatch.context() as patch:
    plant(patch)
    # Some end in an error of the package's own, which is found as well.
    with pytest.raises((Mismatch, ValueError, IndexError), match=r".+"):
      check(recipe, LEGS, tmp_path)


@pytest.mark.parametrize("recipe", [PLANS, STREAMS])
def test_without_a_bug_it_passes(recipe, tmp_path):
  assert check(recipe, LEGS, tmp_path) == 6


# Files, and rooms that every layout can divide.
IN_FILES = [
  dataclasses.replace(
    recipe,
    packing=dataclasses.replace(recipe.packing, segment_multiple=4),
    sources=tuple(
      dataclasses.replace(source, form="json_lines")
      for source in recipe.sources
    ),
  )
  for recipe in (PLANS, STREAMS)
]

# What `build` makes, each leg under another layout.
MESH_LEGS = tuple(
  MeshLeg(
    axes=axes,
    batch_size=4,
    num_batches=1,
    processes=(0, 0, 1, 1, 0, 0, 1, 1),
    layout=layout,
  )
  for axes, layout in (
    ((("data", 2), ("cp", 2), ("tp", 2)), "document_zigzag"),
    ((("cp", 2), ("data", 4)), "zigzag"),
    ((("data", 2), ("cp", 4)), "striped"),
  )
)


@pytest.mark.parametrize("leg", MESH_LEGS, ids=lambda leg: leg.layout)
@pytest.mark.parametrize("recipe", IN_FILES, ids=lambda r: r.mode)
@pytest.mark.parametrize("plant", OF_LAYOUTS, ids=lambda p: p.__name__)
def test_a_batch_under_a_layout_finds(plant, recipe, leg, tmp_path):
  with pytest.MonkeyPatch.context() as patch:
    plant(patch)
    with pytest.raises(MeshMismatch, match="leg 0, batch 0"):
      check_build(recipe, Config(), [leg], tmp_path)


@pytest.mark.parametrize("recipe", IN_FILES, ids=lambda r: r.mode)
def test_layouts_change_from_leg_to_leg(recipe, tmp_path):
  assert check_build(recipe, Config(), MESH_LEGS, tmp_path) == 3
