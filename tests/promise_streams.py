"""Row streams of records read in turn: the reference's, or not."""

import functools
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import online_data
import reference_online as reference
from online_recipes import (
  Data,
  Leg,
  Mismatch,
  NoRows,
  Recipe,
  compare,
  expected_fields,
  make_recipe_transform,
  part_of,
  refuses,
)
from reference_packers import Row

from hpgrain.packing import PackingOptions
from hpgrain.streams import StreamRows


def open_streams(data: Data, leg: Leg) -> Any:
  recipe = data.recipe
  packing = recipe.packing
  return StreamRows(
    data.open(online_data.open_in_turn),
    [make_recipe_transform(recipe, data.folder) for _ in recipe.sources],
    options=PackingOptions(
      budget=packing.budget,
      packer=packing.packer,
      overlong=packing.overlong,
      segment_multiple=packing.segment_multiple,
      max_items=packing.max_items,
      min_buffered=packing.min_buffered,
      examples_per_row=packing.examples_per_row,
    ),
    pack_window=packing.pack_window,
    weights=recipe.weights,
    seed=recipe.seed,
    num_streams=recipe.num_streams,
    shuffle_buffer_size=recipe.buffer if recipe.shuffle else None,
    epochs=recipe.epochs,
    vocab_size=100,
    handover_bytes=leg.handover_bytes,
    spill_folder=data.folder,
  )


def check_streams(recipe: Recipe, legs: Sequence[Leg], folder: Path) -> int:
  """Runs the legs over row streams; returns how many batches were compared."""
  data = Data(recipe, folder)
  order = data.order()
  try:
    return run_legs(data, order, legs)
  except ValueError as error:
    # How far is read before the first row decides whether these are found.
    said = str(error)
    several = recipe.packing.packer == "fixed" and order.gives_several
    if several and "type='fixed' takes exactly one" in said:
      return 0
    if recipe.weights and not all(order.sizes) and "has no record" in said:
      return 0
    raise


def run_legs(data: Data, order: reference.Order, legs: Sequence[Leg]) -> int:
  """Compares every batch of the legs."""
  recipe = data.recipe
  endless = recipe.epochs is None
  if endless and any(order.sizes) and not order.makes_rows(recipe.packing):
    # It is told after an epoch of every source, which may be far.
    weights = recipe.weights or [1]
    if max(weights) > 100 * min(weights):
      raise NoRows("nothing makes a row, and that takes long to find")
    return refuses(lambda: first_row(data, legs[0]), "[Nn]o record|no example")
  streams = reference.Streams(
    order, recipe.packing, num_streams=recipe.num_streams
  )
  row, states, compared = 0, [], 0
  for number, leg in enumerate(legs):
    if leg.moved:
      data.write()
    with Readers(data, leg, row) as readers:
      if states:
        readers.restore(states)
      for step in range(leg.num_batches):
        where = f"leg {number}, batch {step} (row {row})"
        numbers = np.arange(row, row + leg.batch_size)
        try:
          rows = [streams.row(int(g)) for g in numbers]
        except reference.NoRecord:
          refuses(functools.partial(readers.read, numbers), "has no record")
          return compared
        compare_batch(readers, numbers, rows, where)
        row += leg.batch_size
        compared += 1
        readers.check(streams, where)
      states = readers.states()
  return compared


def first_row(data: Data, leg: Leg) -> None:
  reader = open_streams(data, leg).open([0])
  try:
    reader.rows([0])
  finally:
    reader.close()


class Readers:
  """The processes of a leg, each with the streams that it holds."""

  def __init__(self, data: Data, leg: Leg, row: int):
    self.recipe, self.leg = data.recipe, leg
    samples = open_streams(data, leg)
    self.of: dict[int, Any] = {}
    self.held: dict[int, list[int]] = {}
    # Rows that each reader gave of each stream.
    self.given: dict[int, dict[int, int]] = {}
    for owner in sorted(set(leg.owners)):
      streams = held_streams(self.recipe, leg, owner, row)
      self.held[owner] = streams
      self.given[owner] = dict.fromkeys(streams, 0)
      # A copy each, as processes of their own would have.
      self.of[owner] = pickle.loads(pickle.dumps(samples)).open(streams)

  def __enter__(self) -> "Readers":
    return self

  def __exit__(self, *error: object) -> None:
    for reader in self.of.values():
      reader.close()

  def restore(self, states: Sequence[Mapping[str, Any]]) -> None:
    for owner, reader in self.of.items():
      reader.restore(states)
      for v in self.given[owner]:
        entries = [s["streams"].get(str(v), [0]) for s in states]
        self.given[owner][v] = max(entry[0] for entry in entries)

  def states(self) -> list[dict[str, Any]]:
    """What each process saves, as JSON brings it back."""
    states = []
    for owner, reader in self.of.items():
      state = json.loads(json.dumps(reader.state()))
      if sorted(map(int, state["streams"])) != self.held[owner]:
        raise Mismatch(f"process {owner} saves {sorted(state['streams'])}")
      for v, entry in state["streams"].items():
        kinds = [type(part) for part in entry]
        if kinds != [int, int, int, str, int]:
          raise Mismatch(f"stream {v} is {entry}")
        if entry[0] != self.given[owner][int(v)]:
          raise Mismatch(f"stream {v} gave {self.given[owner]}, says {entry}")
        if len(json.dumps(entry)) > 256 + entry[2] / 4:
          raise Mismatch(f"stream {v} takes {len(json.dumps(entry))} bytes")
      states.append(state)
    return states

  def read(self, numbers: np.ndarray) -> None:
    """Asks every process for its rows of a batch."""
    for owner in self.of:
      for who, run, _ in self.leg.parts(self.recipe.packing.budget):
        if who == owner:
          self.rows(owner, numbers[slice(*run)])

  def rows(self, owner: int, numbers: np.ndarray) -> Any:
    opened = self.of[owner].rows(numbers)
    for g in numbers.tolist():
      turn, v = divmod(g, self.recipe.num_streams)
      self.given[owner][v] = turn + 1
    return opened

  def check(self, streams: reference.Streams, where: str) -> None:
    """Compares what is left, and what is counted."""
    for owner, reader in self.of.items():
      given = self.given[owner]
      # A row of padding is none that was given.
      for v, turns in given.items():
        given[v] = sum(
          streams.row(t * streams.num_streams + v) is not None
          for t in range(turns)
        )
      if self.recipe.epochs is not None:
        left = [
          streams.row(turns * streams.num_streams + v) is not None
          for v, turns in given.items()
        ]
        if reader.rows_left(list(given)).tolist() != left:
          raise Mismatch(f"{where}: process {owner} has rows left, not {left}")
      counters = reader.counters()
      sources = counters["sources"].values()
      in_rows = sum(source["tokens_in_rows"] for source in sources)
      budget = self.recipe.packing.budget
      if counters["rows"] * budget != in_rows + counters["padded"]:
        raise Mismatch(f"{where}: {counters}")
      for source in sources:
        lost = sum(source["tokens_dropped"].values())
        if source["tokens_read"] != source["tokens"] + lost:
          raise Mismatch(f"{where}: {source}")


def held_streams(recipe: Recipe, leg: Leg, owner: int, row: int) -> list[int]:
  """The streams of whose rows a process has any, from a row on."""
  rows = {
    r
    for who, run, _ in leg.parts(recipe.packing.budget)
    if who == owner
    for r in range(*run)
  }
  count = recipe.num_streams
  return sorted(
    {
      (row + batch * leg.batch_size + r) % count
      for batch in range(count)
      for r in rows
    }
  )


def compare_batch(
  readers: Readers, numbers: np.ndarray, rows: Sequence[Row | None], where: str
) -> None:
  """Compares what each process makes of a batch."""
  recipe, leg = readers.recipe, readers.leg
  width = recipe.packing.budget
  want = expected_fields(recipe, rows, width)
  opened: dict[Any, Any] = {}
  for owner, run, window in leg.parts(width):
    key = (owner, run)
    if key not in opened:
      opened[key] = readers.rows(owner, numbers[slice(*run)])
      filled = [rows[i] is not None for i in range(*run)]
      if opened[key].filled.tolist() != filled:
        raise Mismatch(f"{where}: filled {opened[key].filled}, not {filled}")
    got = opened[key].fields(
      window, num_rows=run[1] - run[0], options=recipe.field_options
    )
    compare(got, part_of(want, run, window), f"{where}, process {owner}")
