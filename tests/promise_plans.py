"""Row plans of records tokenized while training: the reference's, or not."""

import json
import pickle
from collections.abc import Sequence
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
  expected_width,
  make_recipe_transform,
  part_of,
  refuses,
)

from hpgrain.balance import BalancedSamples
from hpgrain.index_cache import IndexCache
from hpgrain.measured import MeasuredRecords
from hpgrain.online_samples import OnlineSamples
from hpgrain.packing import PackingOptions


def open_samples(data: Data, leg: Leg) -> Any:
  """The rows under test, as a process of the leg has them."""
  recipe = data.recipe
  packing = recipe.packing
  cache = IndexCache(data.folder / "cache" if leg.cached else None)
  samples: Any = OnlineSamples(
    [
      MeasuredRecords(
        records,
        make_recipe_transform(recipe, data.folder),
        cache=cache,
        keep_tokens=leg.keep_tokens and leg.cached,
        chunk_records=leg.chunk_records,
        one_example_each=packing.packer == "fixed",
      )
      for records in data.open(online_data.open_by_number)
    ],
    options=PackingOptions(
      budget=packing.budget,
      packer=packing.packer,
      plan_window=recipe.plan_window,
      overlong=packing.overlong,
      segment_multiple=packing.segment_multiple,
      max_items=packing.max_items,
      min_buffered=packing.min_buffered,
      examples_per_row=packing.examples_per_row,
    ),
    seed=recipe.seed,
    weights=recipe.weights,
    shuffle=recipe.shuffle,
    epochs=recipe.epochs,
    vocab_size=100,
    length_buckets=recipe.length_buckets,
  )
  if recipe.balance:
    shares, rows = recipe.balance
    samples = BalancedSamples(samples, shares=shares, rows=rows)
  return samples


def check_plans(recipe: Recipe, legs: Sequence[Leg], folder: Path) -> int:
  """Runs the legs over row plans; returns how many batches were compared."""
  data = Data(recipe, folder)
  order = data.order()
  sizes = order.sizes
  if not any(sizes) or (recipe.weights and not all(sizes)):
    return refuses(lambda: open_samples(data, legs[0]), "has no record")
  rows: Any = reference.Plans(
    order, recipe.packing, plan_window=recipe.plan_window
  )
  if recipe.packing.packer == "fixed" and order.gives_several:
    measure = open_samples(data, legs[0]).measure
    return refuses(measure, "type='fixed' takes exactly one")
  check_has_row(recipe, order, open_samples(data, legs[0]))
  if recipe.balance:
    shares, block = recipe.balance
    rows = reference.Balanced(rows, shares=shares, block_rows=block)
  row, place, compared = 0, (0, 0), 0
  for number, leg in enumerate(legs):
    if leg.moved:
      data.write()
    samples = open_samples(data, leg)
    samples.seek(*place)
    # The others have a copy each, as processes of their own would.
    held = {owner: pickle.loads(pickle.dumps(samples)) for owner in leg.owners}
    for step in range(leg.num_batches):
      where = f"leg {number}, batch {step} (row {row})"
      chosen = rows.rows(row + leg.batch_size)[row:]
      if not chosen:
        check_end(recipe, samples, row, where)
        break
      numbers = np.arange(row, row + len(chosen))
      width = samples.row_positions(numbers)
      if width != expected_width(recipe, chosen):
        raise Mismatch(f"{where}: {width} positions")
      padded = [*chosen, *[None] * (leg.batch_size - len(chosen))]
      want = expected_fields(recipe, padded, width)
      opened: dict[Any, Any] = {}
      for owner, run, window in leg.parts(width):
        key = (owner, run)
        if key not in opened:
          opened[key] = held[owner].open_rows(numbers[slice(*run)])
        got = opened[key].fields(
          window, num_rows=run[1] - run[0], options=recipe.field_options
        )
        compare(got, part_of(want, run, window), f"{where}, process {owner}")
      row += len(chosen)
      compared += 1
      check_plan_counters(recipe, rows, samples, row, where)
    place = json.loads(json.dumps(samples.place(row)))
  return compared


def check_has_row(recipe: Recipe, order: reference.Order, samples: Any) -> None:
  there = order.makes_rows(recipe.packing)
  if recipe.epochs is not None:
    plans = reference.Plans(
      order, recipe.packing, plan_window=recipe.plan_window
    )
    there = bool(plans.rows(1))
  if samples.has_row() != there:
    raise Mismatch(f"has_row() is {samples.has_row()}")
  if recipe.epochs is None and not there:
    raise NoRows("endless, and nothing makes a row")


def check_end(recipe: Recipe, samples: Any, row: int, where: str) -> None:
  """Raises Mismatch unless the order ends before `row`."""
  if recipe.epochs is None or samples.num_rows(recipe.epochs) != row:
    raise Mismatch(f"{where}: the reference ends, {len(samples)} rows do not")


def check_plan_counters(
  recipe: Recipe, rows: Any, samples: Any, row: int, where: str
) -> None:
  """Compares what the first rows hold with what is counted of them."""
  if recipe.balance and row % recipe.balance[1]:
    return
  counters = samples.counters(row)
  found = rows.rows(row)
  kept = [0] * len(recipe.sources)
  for piece in (piece for of in found for piece in of):
    kept[piece.source] += len(piece)
  positions = sum(max(recipe.packing.budget, sum(map(len, of))) for of in found)
  if counters["rows"] != row or counters["padded"] != positions - sum(kept):
    raise Mismatch(f"{where}: {counters}")
  for name, tokens in zip(recipe.names, kept, strict=True):
    of = counters["sources"][name]
    if of["tokens"] != tokens or of["tokens_read"] != tokens + sum(
      of["tokens_dropped"].values()
    ):
      raise Mismatch(f"{where}: {of}, expected {tokens} tokens")
