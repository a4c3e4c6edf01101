"""The promise as a function: a run's batches equal the reference's.

A `Recipe` is all that may decide the rows; a `Leg` is all that may not: the
mesh, the processes, the batch size, the prefetch, when the leg is interrupted.
`check` runs the legs one after another, each going on from the state that the
one before left, and raises `Mismatch` at the first batch that is not the
reference's.
"""

import dataclasses
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import corpora
import jax
import ml_collections as mlc
import numpy as np
import reference

import hpgrain
from hpgrain import batches as batches_lib
from hpgrain import shard

NUM_DEVICES = 8
EOD = 0
VOCAB_SIZE = 100


class Mismatch(AssertionError):
  """A batch is not the one the rules give."""


class NoRows(Exception):
  """The recipe's corpora are too small for what it asks of them."""


@dataclasses.dataclass(frozen=True)
class SourceRecipe:
  """One corpus: how large, of which tokens, how weighted."""

  seed: int
  rows: int
  slack: int = 0
  max_length: int = 12
  dtype: str = "uint16"
  name: str | None = None
  weight: float | int | None = None


@dataclasses.dataclass(frozen=True)
class Recipe:
  """What decides the rows, and nothing else.

  `kind` is "gpt", "precut" or "mock"; several sources are blended, by weights
  or as `simple_blend` says. `split` is None where each split has its own path.
  """

  kind: str
  sources: tuple[SourceRecipe, ...] = ()
  seq_length: int = 8
  seed: int = 0
  extra: int = 1
  which: str = "train"
  split: str | None = None
  simple_blend: str = "no"
  keep_last: bool = False
  epochs: int | None = None
  sampler_type: str = "cyclic"
  end_of_data: str | None = None
  first_row: int = 0
  labels_are_shifted: bool = True
  mask_boundary_labels: bool = True
  reset_position_ids: bool = False
  reset_attention_mask: bool = True
  eod_mask_loss: bool = False


@dataclasses.dataclass(frozen=True)
class Leg:
  """A stretch of the run on one mesh: `num_batches`, then it is interrupted.

  `processes` says for each device which process would hold it; every
  process's share is made by itself too. `moved` moves the corpora to another
  folder first.
  """

  axes: tuple[tuple[str, int], ...]
  batch_size: int
  num_batches: int
  data_axes: tuple[str, ...] = ("data",)
  sequence_parallel: bool = False
  prefetch: int = 2
  processes: tuple[int, ...] = (0,) * NUM_DEVICES
  train_iters: int = 1000
  mmap: bool = True
  contiguous: bool = True
  lazy: bool = False
  max_open_files: int = 512
  moved: bool = False

  @property
  def sizes(self) -> dict[str, int]:
    return dict(self.axes)

  @property
  def position_axes(self) -> tuple[str, ...]:
    wanted = ("cp", "tp") if self.sequence_parallel else ("cp",)
    return tuple(axis for axis in wanted if axis in self.sizes)

  @property
  def row_parts(self) -> int:
    return math.prod(self.sizes[axis] for axis in self.data_axes)

  @property
  def position_parts(self) -> int:
    return math.prod(self.sizes[axis] for axis in self.position_axes)


# From a recipe: files, a configuration, the reference's rows.


def write_sources(recipe: Recipe, folder: Path) -> list[str]:
  """Writes the recipe's corpora; returns their prefixes."""
  prefixes = []
  for number, source in enumerate(recipe.sources):
    rng = random.Random(source.seed)
    if recipe.kind == "precut":
      documents = corpora.random_records(
        rng,
        num_records=source.rows,
        length=recipe.seq_length + recipe.extra,
        vocab_size=VOCAB_SIZE,
        eod=EOD,
      )
    else:
      wanted = source.rows * recipe.seq_length + recipe.extra + source.slack
      documents = corpora.documents_of(
        rng,
        num_tokens=wanted,
        max_length=source.max_length,
        vocab_size=VOCAB_SIZE,
        eod=EOD,
      )
    prefix = folder / f"corpus{number}"
    prefixes.append(corpora.write_pair(prefix, documents, dtype=source.dtype))
  return prefixes


def move(prefixes: Sequence[str], folder: Path) -> list[str]:
  """Moves the corpora to another folder; returns their new prefixes."""
  folder.mkdir()
  for prefix in prefixes:
    for suffix in (".idx", ".bin"):
      source = Path(prefix + suffix)
      source.rename(folder / source.name)
  return [str(folder / Path(prefix).name) for prefix in prefixes]


def reference_sources(
  recipe: Recipe, prefixes: Sequence[str]
) -> list[reference.Source]:
  """The sources of the split that the recipe asks for."""
  train = recipe.which == "train"
  if recipe.kind == "mock":
    return [
      reference.Mock(
        seed=recipe.seed,
        seq_length=recipe.seq_length,
        split_name=recipe.which,
        vocab_size=VOCAB_SIZE,
        extra=recipe.extra,
      )
    ]
  made: list[reference.Source] = []
  for source, prefix in zip(recipe.sources, prefixes, strict=True):
    corpus = reference.read_corpus(prefix)
    count = len(corpus.sequences)
    bounds: tuple[int, int] | None = (0, count)
    if recipe.split is not None:
      index = reference.SPLIT_NAMES.index(recipe.which)
      bounds = reference.split_bounds(recipe.split, count)[index]
    options: dict[str, Any] = {
      "seed": recipe.seed,
      "name": source.name or Path(prefix).name,
      "bounds": bounds,
      "shuffle": train,
    }
    if recipe.kind == "precut":
      made.append(reference.PreCut(corpus, eod=EOD, **options))
    else:
      made.append(
        reference.GPT(
          corpus,
          seq_length=recipe.seq_length,
          extra=recipe.extra,
          keep_last=recipe.keep_last and not train,
          **options,
        )
      )
  return made


def reference_rows(recipe: Recipe, prefixes: Sequence[str]) -> reference.Rows:
  """The rows as the rules have them."""
  sources = reference_sources(recipe, prefixes)
  if len(sources) == 1:
    return sources[0]
  if recipe.simple_blend == "inter":
    return reference.Inter(sources)
  if recipe.simple_blend == "intra":
    return reference.Intra(sources)
  weights = [source.weight for source in recipe.sources]
  return reference.Blend(sources, None if None in weights else weights)


def require_rows(recipe: Recipe, prefixes: Sequence[str]) -> None:
  """Raises NoRows if a split that is built has too little data for a row."""
  if recipe.kind == "mock":
    return
  wanted = {recipe.which}
  if recipe.split and reference.split_bounds(recipe.split, 1)[0]:
    wanted.add("train")
  for which in wanted:
    split = dataclasses.replace(recipe, which=which)
    sizes = [
      source.rows_per_epoch for source in reference_sources(split, prefixes)
    ]
    weighted = recipe.sources[0].weight is not None
    if not (all(sizes) if weighted else any(sizes)):
      raise NoRows(f"{which} has {sizes} rows")


def data_path(recipe: Recipe, prefixes: Sequence[str]) -> Any:
  """The data path in the plainest form that says it."""
  if len(prefixes) == 1 and recipe.sources[0].name is None:
    return prefixes[0]
  entries = []
  for source, prefix in zip(recipe.sources, prefixes, strict=True):
    entry: dict[str, Any] = {"path": prefix}
    if source.weight is not None:
      entry["weight"] = source.weight
    if source.name is not None:
      entry["name"] = source.name
    entries.append(entry)
  if all(source.name is None for source in recipe.sources):
    if recipe.sources[0].weight is None:
      return tuple(prefixes)
    weights = [source.weight for source in recipe.sources]
    return tuple(
      itertools.chain.from_iterable(zip(weights, prefixes, strict=True))
    )
  return tuple(entries)


def make_config(
  recipe: Recipe, leg: Leg, prefixes: Sequence[str], *, first_row: int
) -> mlc.ConfigDict:
  """The configuration of one leg."""
  dataset: dict[str, Any] = {
    "kind": "indexed",
    "data_config": {
      "seq_length": recipe.seq_length,
      "mock_data": recipe.kind == "mock",
      "is_dataset_from_mr": recipe.kind == "precut",
      "simple_blend": recipe.simple_blend,
      "data_lazy_load": leg.lazy,
      # Short documents may all be as long as a row by chance.
      "skip_data_check": recipe.kind == "gpt",
      "add_extra_token_to_sequence": bool(recipe.extra),
      "drop_last_partial_validation_sequence": not recipe.keep_last,
      "mmap": leg.mmap,
      "contiguous": leg.contiguous,
      "max_open_files": leg.max_open_files,
      "vocab_size": VOCAB_SIZE,
      "eod_id": EOD,
    },
  }
  if recipe.split is not None:
    dataset["data_config"]["split"] = recipe.split
  if recipe.kind != "mock":
    key = "data_path" if recipe.split else f"{recipe.which}_data_path"
    dataset[key] = data_path(recipe, prefixes)
  mesh = {
    "axes": tuple(leg.sizes),
    "data_axes": leg.data_axes,
    "sequence_parallel": leg.sequence_parallel,
    **leg.sizes,
  }
  dataloader: dict[str, Any] = {
    "sampler_type": recipe.sampler_type,
    "consumed_samples": first_row,
    "prefetch": leg.prefetch,
  }
  if recipe.epochs is not None:
    dataloader["epochs"] = recipe.epochs
  if recipe.end_of_data is not None:
    dataloader["end_of_data"] = recipe.end_of_data
  return mlc.ConfigDict(
    {
      "training": {
        "global_batch_size": leg.batch_size,
        "seed": recipe.seed,
        "eval_iters": 0,
        "train_iters": leg.train_iters,
      },
      "mesh": mesh,
      "dataset": dataset,
      "dataloader": dataloader,
      "get_batch": {
        "labels_are_shifted": recipe.labels_are_shifted,
        "mask_boundary_labels": recipe.mask_boundary_labels,
        "reset_position_ids": recipe.reset_position_ids,
        "reset_attention_mask": recipe.reset_attention_mask,
        "eod_mask_loss": recipe.eod_mask_loss,
      },
    }
  )


def num_epochs(recipe: Recipe) -> int | None:
  """How many epochs the rows have; None = endless."""
  if recipe.kind == "mock":
    return None
  if recipe.which != "train" or recipe.sampler_type == "single":
    return 1
  return recipe.epochs


def expected_batches(
  recipe: Recipe, rows: reference.Rows, *, first_row: int, batch_size: int
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
  """The reference's batches from a row on."""
  train = recipe.which == "train"
  return reference.batches(
    rows,
    fields=reference.Fields(
      seq_length=recipe.seq_length,
      labels_are_shifted=recipe.labels_are_shifted,
      mask_boundary_labels=recipe.mask_boundary_labels,
      reset_position_ids=recipe.reset_position_ids,
      reset_attention_mask=recipe.reset_attention_mask,
      eod_mask_loss=recipe.eod_mask_loss,
      eod=EOD,
    ),
    batch_size=batch_size,
    start_row=first_row,
    epochs=num_epochs(recipe),
    end_of_data=recipe.end_of_data or ("drop" if train else "pad"),
  )


# Comparing.


def device_slices(
  leg: Leg, mesh: jax.sharding.Mesh, seq_length: int
) -> dict[Any, tuple[slice, slice]]:
  """Which rows and positions of the batch each device is to hold."""
  height = leg.batch_size // leg.row_parts
  width = seq_length // leg.position_parts
  slices = {}
  for place in np.ndindex(mesh.devices.shape):
    at = dict(zip(leg.sizes, place, strict=True))
    row = position = 0
    for axis in leg.data_axes:
      row = row * leg.sizes[axis] + at[axis]
    for axis in leg.position_axes:
      position = position * leg.sizes[axis] + at[axis]
    slices[mesh.devices[place]] = (
      slice(row * height, (row + 1) * height),
      slice(position * width, (position + 1) * width),
    )
  return slices


def compare(
  got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], where: str
) -> None:
  """Raises Mismatch unless the fields, dtypes and values are the same."""
  if set(got) != set(want):
    raise Mismatch(f"{where}: fields {sorted(got)}, expected {sorted(want)}")
  for name in want:
    array = np.asarray(got[name])
    if array.dtype != want[name].dtype:
      raise Mismatch(f"{where}: {name} is {array.dtype}")
    if not np.array_equal(array, want[name]):
      raise Mismatch(f"{where}: {name} is\n{array}\nexpected\n{want[name]}")


def compare_placed(
  got: Mapping[str, jax.Array],
  want: Mapping[str, np.ndarray],
  slices: Mapping[Any, tuple[slice, slice]],
  where: str,
) -> None:
  """Compares what lies on every device, replicas included."""
  for name, array in got.items():
    if array.shape != next(iter(want.values())).shape:
      raise Mismatch(f"{where}: {name} has the shape {array.shape}")
  held = {
    device: {
      name: shard_.data
      for name, array in got.items()
      for shard_ in array.addressable_shards
      if shard_.device == device
    }
    for device in slices
  }
  for device, part in slices.items():
    compare(
      held[device],
      {name: array[part] for name, array in want.items()},
      f"{where}, device {device.id}",
    )


def compare_shares(
  spec: batches_lib.BatchSpec,
  leg: Leg,
  want: Mapping[str, np.ndarray],
  slices: Mapping[Any, tuple[slice, slice]],
  *,
  first_row: int,
  where: str,
) -> None:
  """Makes every process's share by itself and compares each device's part."""
  devices = list(slices)
  for process in sorted(set(leg.processes)):
    held = [
      device
      for device, owner in zip(devices, leg.processes, strict=True)
      if owner == process
    ]
    # Whoever asks for the process's index gets the simulated one.
    with mock.patch.object(jax, "process_index", return_value=process):
      layout = shard.batch_layout(
        spec.layout.sharding,
        num_rows=spec.layout.shape[0],
        num_positions=spec.layout.shape[1],
        devices=held,
      )
      parts, _ = batches_lib.make_shards(
        spec.samples,
        layout.shards,
        first_row=first_row,
        end_row=spec.end_row,
        options=spec.options,
      )
    made = {
      device: part
      for rectangle, part in zip(layout.shards, parts, strict=True)
      for device in rectangle.devices
    }
    if set(made) != set(held):
      raise Mismatch(f"{where}: process {process} makes {sorted(made)}")
    for device in held:
      compare(
        made[device],
        {name: array[slices[device]] for name, array in want.items()},
        f"{where}, process {process}, device {device.id}",
      )


def check(recipe: Recipe, legs: Sequence[Leg], folder: Path) -> int:
  """Runs the legs; returns how many batches were compared.

  Raises:
    Mismatch: at the first batch that is not the reference's.
    NoRows: if there is nothing to compare.
  """
  prefixes = write_sources(recipe, folder)
  require_rows(recipe, prefixes)
  rows = reference_rows(recipe, prefixes)
  row, state, compared = recipe.first_row, None, 0
  for number, leg in enumerate(legs):
    if leg.moved:
      prefixes = move(prefixes, folder / f"leg{number}")
    config = make_config(
      recipe, leg, prefixes, first_row=0 if state else recipe.first_row
    )
    mesh = shard.make_mesh(tuple(leg.sizes), leg.sizes)
    slices = device_slices(leg, mesh, recipe.seq_length)
    loader = getattr(hpgrain.build(config, mesh), recipe.which)
    expected = expected_batches(
      recipe, rows, first_row=row, batch_size=leg.batch_size
    )
    iterator = iter(loader)
    try:
      if state is not None:
        iterator.set_state(state)
      for step in range(leg.num_batches):
        where = f"leg {number}, batch {step} (row {row})"
        got, entry = next(iterator, None), next(expected, None)
        if got is None or entry is None:
          if (got is None) != (entry is None):
            raise Mismatch(f"{where}: the data ends too soon or too late")
          break
        after, want = entry
        compare_placed(got, want, slices, where)
        if len(set(leg.processes)) > 1:
          compare_shares(
            loader.spec, leg, want, slices, first_row=row, where=where
          )
        row, compared = after, compared + 1
      state = json.loads(json.dumps(iterator.get_state()))
    finally:
      iterator.close()
  return compared
