"""Batches that `build` makes of records, on simulated devices: the reference's.

A `Recipe` becomes files and a configuration, a `promise.Leg` a mesh. Every
process's share is made by itself too, and of streams it is these shares'
states that the next leg goes on from.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_collections as mlc
import numpy as np
import reference_layouts
import reference_online as reference
from online_recipes import (
  Data,
  Mismatch,
  NoRows,
  Recipe,
  compare,
  expected_fields,
  expected_width,
  tokenizer_folder,
)
from promise import Leg, compare_placed, device_slices
from reference_packers import Row

import hpgrain
from hpgrain import batches as batches_lib
from hpgrain import shard
from hpgrain.stream_batches import StreamBatches

# Rows, as the reference has them, and rows consumed after the batch.
Batch = tuple[list[Row | None], int]


@dataclasses.dataclass(frozen=True)
class Config:
  """What a configuration says besides a recipe, and which split is read.

  `by_number` says how records of streams are opened; `end_of_data` is of
  plans; `num_workers` decides nothing, and changes from leg to leg.
  """

  which: str = "train"
  micro_batch_size: int = 1
  by_number: bool = True
  end_of_data: str | None = None
  num_workers: tuple[int, ...] = (0,)


def make_config(
  recipe: Recipe, config: Config, leg: Leg, data: Data, *, num_workers: int = 0
) -> mlc.ConfigDict:
  """The configuration of one leg."""
  packing = recipe.packing
  streams, train = recipe.mode == "streams", config.which == "train"
  section: dict[str, Any] = {
    "dataset_type": "mapping" if config.by_number else "iterable",
    "vocab_size": 100,
    "eod_id": reference.EOS,
  }
  if streams and config.by_number:
    section["lengths"] = "stream"
  if train:
    section["shuffle"] = recipe.shuffle
  if streams and recipe.buffer:
    section["shuffle_buffer_size"] = recipe.buffer
  if leg.cached:
    section["data_cache_path"] = str(data.folder / "cache")
    if not streams:
      section["keep_tokens"] = leg.lazy
  dataloader: dict[str, Any] = {
    "prefetch": leg.prefetch,
    "num_workers": num_workers,
  }
  if packing.packer == "fixed":
    dataloader["type"] = "fixed"
  else:
    dataloader |= {
      "type": "dynamic",
      "packer": packing.packer,
      "token_budget": packing.budget,
    }
    if packing.packer != "concat":
      dataloader["overlong"] = packing.overlong
      dataloader["segment_multiple"] = packing.segment_multiple
    if packing.max_items:
      dataloader["max_segments"] = packing.max_items + 1
    if packing.packer == "first_fit":
      dataloader["min_buffered_samples"] = packing.min_buffered
    if packing.packer == "best_fit" and streams:
      dataloader["pack_window"] = packing.pack_window
  if streams:
    dataloader["num_streams"] = recipe.num_streams
  else:
    dataloader["plan_window"] = recipe.plan_window
    if config.end_of_data:
      dataloader["end_of_data"] = config.end_of_data
  if recipe.length_buckets:
    dataloader["length_buckets"] = recipe.length_buckets
  if recipe.balance and train:
    shares, rows = recipe.balance
    dataloader |= {"balance_shares": shares, "balance_rows": rows}
  if train and recipe.epochs is not None:
    dataloader["epochs"] = recipe.epochs
  made = {
    "training": {
      "global_batch_size": leg.batch_size * config.micro_batch_size,
      "micro_batch_size": config.micro_batch_size,
      "seed": recipe.seed,
    },
    "mesh": {
      "axes": tuple(leg.sizes),
      "data_axes": leg.data_axes,
      "sequence_parallel": leg.sequence_parallel,
      **leg.sizes,
    },
    "data_transform": {
      "data_type": recipe.transform.kind,
      "max_seq_len": recipe.transform.max_seq_len,
    },
    "dataset": {
      "kind": "online",
      f"{config.which}_data_path": data_path(recipe, data),
      "data_config": section,
    },
    "dataloader": dataloader,
    "get_batch": {
      "labels_are_shifted": recipe.transform.labels_are_shifted,
      "reset_position_ids": recipe.reset_position_ids,
      "reset_attention_mask": recipe.reset_attention_mask,
      "eod_mask_loss": recipe.eod_mask_loss,
      "context_parallel_layout": leg.layout,
    },
  }
  if recipe.transform.kind == "plaintext":
    folder = tokenizer_folder(data.folder / "words")
    made["model_assets"] = {
      "tokenizer": {"pretrained_model_name_or_path": str(folder)}
    }
  return mlc.ConfigDict(made)


def data_path(recipe: Recipe, data: Data) -> tuple[dict[str, Any], ...]:
  """The sources with their names."""
  entries = []
  for source, paths, name in zip(
    recipe.sources, data.paths, recipe.names, strict=True
  ):
    entry: dict[str, Any] = {"path": ",".join(paths), "name": name}
    if source.weight is not None:
      entry["weight"] = source.weight
    entries.append(entry)
  return tuple(entries)


# What the reference gives.


def expected_plans(
  recipe: Recipe, config: Config, rows: Any, row: int, batch_size: int
) -> Iterator[Batch]:
  """The batches of plans from a row on."""
  train = config.which == "train"
  pads = (config.end_of_data or ("drop" if train else "pad")) == "pad"
  while True:
    chosen: list[Row | None] = list(rows.rows(row + batch_size)[row:])
    row += len(chosen)
    missing = batch_size - len(chosen)
    if not chosen or (missing and not pads):
      return
    yield [*chosen, *[None] * missing], row


def expected_streams(
  streams: reference.Streams, row: int, batch_size: int, endless: bool
) -> Iterator[Batch]:
  """The batches of streams from a row on, until none has a row left."""
  while True:
    if not endless:
      count = streams.num_streams
      # A stream's next row is within so many of the next ones.
      following = range(row, row + count)
      if all(streams.row(g) is None for g in following):
        return
    rows = [streams.row(g) for g in range(row, row + batch_size)]
    row += batch_size
    yield rows, row


# The legs.


def check_build(
  recipe: Recipe, config: Config, legs: Sequence[Leg], folder: Path
) -> int:
  """Runs the legs; returns how many batches were compared.

  Raises:
    Mismatch: at the first batch that is not the reference's.
    NoRows: if there is nothing to compare.
  """
  data = Data(recipe, folder)
  order = data.order()
  if recipe.epochs is None and not order.makes_rows(recipe.packing):
    raise NoRows("endless, and nothing makes a row")
  if recipe.packing.packer == "fixed" and order.gives_several:
    raise NoRows("a record gives several examples")
  sizes = order.sizes
  if not any(sizes) or (recipe.weights and not all(sizes)):
    raise NoRows("a source has no record")
  try:
    return run_legs(data, config, legs, order)
  except reference.TooFar as error:
    raise NoRows(str(error)) from error


def run_legs(
  data: Data, config: Config, legs: Sequence[Leg], order: reference.Order
) -> int:
  recipe = data.recipe
  rows: Any
  if recipe.mode == "streams":
    rows = reference.Streams(
      order, recipe.packing, num_streams=recipe.num_streams
    )
  else:
    rows = reference.Plans(
      order, recipe.packing, plan_window=recipe.plan_window
    )
    if recipe.balance and config.which == "train":
      shares, block = recipe.balance
      rows = reference.Balanced(rows, shares=shares, block_rows=block)
  row, state, compared = 0, None, 0
  for number, leg in enumerate(legs):
    if leg.moved:
      data.write()
    mesh = shard.make_mesh(tuple(leg.sizes), leg.sizes)
    workers = config.num_workers[number % len(config.num_workers)]
    made = make_config(recipe, config, leg, data, num_workers=workers)
    loader = getattr(hpgrain.build(made, mesh), config.which)
    if recipe.mode == "streams":
      expected = expected_streams(
        rows, row, leg.batch_size, recipe.epochs is None
      )
    else:
      expected = expected_plans(recipe, config, rows, row, leg.batch_size)
    iterator = iter(loader)
    try:
      if state is not None:
        iterator.set_state(state)
      shares_ = Shares(iterator.spec, leg, mesh, row, state)
      ended = False
      for step in range(leg.num_batches):
        where = f"leg {number}, batch {step} (row {row})"
        got, entry = next(iterator, None), next(expected, None)
        if got is None or entry is None:
          if (got is None) != (entry is None):
            raise Mismatch(f"{where}: the data ends too soon or too late")
          shares_.check_end(where)
          ended = True
          break
        chosen, after = entry
        width = padded_width(recipe, chosen, leg)
        want = in_slots(recipe, leg, expected_fields(recipe, chosen, width))
        slices = device_slices(leg, mesh, width)
        compare_placed(got, want, slices, where)
        shares_.check(want, slices, row, where)
        row, compared = after, compared + 1
        if iterator.rows != row:
          raise Mismatch(f"{where}: {iterator.rows} rows are counted")
      state = json.loads(json.dumps(iterator.get_state()))
      if not ended:
        state = shares_.state(state)
    finally:
      iterator.close()
      shares_.close()
  return compared


def padded_width(recipe: Recipe, rows: Sequence[Row | None], leg: Leg) -> int:
  """Positions of a batch, which mesh and layout take equal parts of."""
  width = recipe.packing.budget
  if recipe.mode == "plans":
    width = expected_width(recipe, [row for row in rows if row is not None])
  multiple = leg.position_multiple
  return -(-width // multiple) * multiple


def in_slots(
  recipe: Recipe, leg: Leg, fields: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Fields of rows in the order that the leg's layout gives positions."""
  return reference_layouts.in_slots(
    fields,
    leg.layout,
    leg.context_ranks,
    multiple=recipe.packing.segment_multiple,
  )


class Shares:
  """What each process of a leg would make by itself, and save."""

  def __init__(self, spec: Any, leg: Leg, mesh: Any, row: int, state: Any):
    self.spec, self.leg = spec, leg
    self.devices = list(device_slices(leg, mesh, leg.position_parts))
    self.streams: dict[int, Any] = {}
    if len(set(leg.processes)) == 1:
      return
    if not isinstance(spec, batches_lib.BatchSpec):
      for process in sorted(set(leg.processes)):
        layout = self.layout(process, spec.layout.shape[1])
        of = dataclasses.replace(spec, layout=layout)
        self.streams[process] = iter(StreamBatches(of.on_host()))
        if state is not None:
          self.streams[process].set_state(of.position(state))

  def layout(self, process: int, width: int) -> shard.BatchLayout:
    held = [
      device
      for device, owner in zip(self.devices, self.leg.processes, strict=True)
      if owner == process
    ]
    return shard.batch_layout(
      self.spec.layout.sharding,
      num_rows=self.leg.batch_size,
      num_positions=width,
      devices=held,
      context=self.spec.layout.context,
    )

  def check(
    self,
    want: Mapping[str, np.ndarray],
    slices: Mapping[Any, tuple[slice, slice]],
    row: int,
    where: str,
  ) -> None:
    """Makes every process's share and compares each device's part."""
    processes = sorted(set(self.leg.processes))
    if len(processes) == 1:
      return
    width = next(iter(want.values())).shape[1]
    left = []
    for process in processes:
      layout = self.layout(process, width)
      if self.streams:
        batch = next(self.streams[process])
        parts = batch.parts
        left += batch.left
      else:
        parts, _ = batches_lib.make_shards(
          self.spec.samples,
          layout,
          first_row=row,
          end_row=self.spec.end,
          options=self.spec.options,
        )
      for rectangle, part in zip(layout.shards, parts, strict=True):
        for device in rectangle.devices:
          compare(
            part,
            {name: array[slices[device]] for name, array in want.items()},
            f"{where}, process {process}, device {device.id}",
          )

    if self.spec.epochs is not None and left and not np.any(left):
      raise Mismatch(f"{where}: the processes would end before it")

  def check_end(self, where: str) -> None:
    """Raises Mismatch unless the processes would know that there is no more."""
    left = [of for it in self.streams.values() for of in next(it).left]
    if np.any(left):
      raise Mismatch(f"{where}: some process would go on: {left}")

  def state(self, state: dict[str, Any]) -> dict[str, Any]:
    """The state of the leg; of streams, put together from the shares'."""
    if not self.streams:
      return state
    parts = []
    for iterator in self.streams.values():
      saved = iterator.get_state()
      if saved["rows"] != state["rows"]:
        raise Mismatch(f"a share stands at {saved['rows']}: {state['rows']}")
      parts += saved["parts"]
    return json.loads(json.dumps({**state, "parts": parts}))

  def close(self) -> None:
    for iterator in self.streams.values():
      iterator.close()
