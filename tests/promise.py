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
import reference_layouts
import reference_orders

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
  Megatron's order is made for `train_samples` rows, or for those that the first
  leg asks for. `order_map` is None or a kind of map, see `draw_map`.
  """

  kind: str
  sources: tuple[SourceRecipe, ...] = ()
  seq_length: int = 8
  seed: int = 0
  extra: int = 1
  which: str = "train"
  split: str | None = None
  order: str = "stable"
  train_samples: int | None = None
  eval_iters: int = 0
  simple_blend: str = "no"
  keep_last: bool = False
  epochs: int | None = None
  sampler_type: str | None = None
  data_sharding: int | None = None
  order_map: str | None = None
  end_of_data: str | None = None
  first_row: int = 0
  labels_are_shifted: bool = True
  mask_boundary_labels: bool = True
  reset_position_ids: bool = False
  reset_attention_mask: bool = True
  eod_mask_loss: bool = False
  ltor: bool = False

  @property
  def reads_one_epoch(self) -> bool:
    """Whether the sampler is `single`, Megatron's own."""
    if self.sampler_type is None:
      return self.order == "megatron"
    return self.sampler_type == "single"


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
  layout: str = "contiguous"
  train_iters: int = 1000
  cached: bool = False
  map_form: str = "json"
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

  @property
  def context_ranks(self) -> int:
    return self.sizes.get("cp", 1)

  @property
  def position_multiple(self) -> int:
    """What mesh and layout need the positions of a row to be a multiple of."""
    ranks = self.context_ranks
    cut_in_two = ranks > 1 and self.layout.endswith("zigzag")
    return math.lcm(self.position_parts, 2 * ranks if cut_in_two else 1)

  @property
  def asked_rows(self) -> int:
    return self.train_iters * self.batch_size


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


def reference_source(
  recipe: Recipe, prefixes: Sequence[str], number: int, num_samples: int | None
) -> reference.Source:
  """A source of the split that the recipe asks for.

  Raises:
    NoRows: if it has fewer rows than it is to have buckets.
  """
  train = recipe.which == "train"
  source = recipe.sources[number]
  corpus = reference.read_corpus(prefixes[number])
  count = len(corpus.sequences)
  bounds: tuple[int, int] | None = (0, count)
  if recipe.split is not None:
    index = reference.SPLIT_NAMES.index(recipe.which)
    bounds = reference.split_bounds(recipe.split, count)[index]
  name = source.name or Path(prefixes[number]).name
  buckets = recipe.data_sharding if train else None
  keyed: dict[str, Any] = {"seed": recipe.seed, "name": name}
  options: dict[str, Any] = {"bounds": bounds}
  if recipe.kind != "precut":
    options |= {"seq_length": recipe.seq_length, "extra": recipe.extra}
  made: reference.Source
  if recipe.order == "megatron":
    kept = recipe.keep_last and recipe.which == "valid"
    made = reference_orders.Megatron(
      corpus,
      seed=recipe.seed,
      num_samples=num_samples,
      drop_last=not kept,
      **options,
    )
  elif recipe.order == "documents" and train:
    made = reference_orders.Documents(corpus, **keyed, **options)
  elif recipe.kind == "precut":
    shuffle = train and buckets is None
    made = reference.PreCut(
      corpus, eod=EOD, shuffle=shuffle, **keyed, **options
    )
  else:
    made = reference.GPT(
      corpus,
      keep_last=recipe.keep_last and not train,
      shuffle=train and buckets is None,
      **keyed,
      **options,
    )
  if buckets is None:
    return made
  if made.rows_per_epoch < buckets:
    raise NoRows(f"{made.rows_per_epoch} rows for {buckets} buckets")
  wraps = recipe.order == "megatron"
  return reference_orders.Buckets(made, count=buckets, wraps=wraps, **keyed)


def reference_rows(
  recipe: Recipe, prefixes: Sequence[str], num_samples: int
) -> reference.Rows:
  """The rows as the rules have them.

  Raises:
    NoRows: if a source has none where there must be some.
  """
  rows = unsampled_rows(recipe, prefixes, num_samples)
  megatron, sharded = recipe.order == "megatron", recipe.data_sharding
  permuted = megatron and not recipe.reads_one_epoch and not sharded
  if recipe.which != "train" or not (permuted or recipe.order_map):
    return rows
  order_map = draw_map(recipe, rows.num_rows(1))
  if isinstance(order_map, dict):
    order_map = [order_map.get(i, i) for i in range(rows.num_rows(1))]
  return reference_orders.Rearranged(
    rows,
    order_map=order_map,
    permute_seed=recipe.seed if permuted else None,
    wraps=megatron and not sharded,
  )


def unsampled_rows(
  recipe: Recipe, prefixes: Sequence[str], num_samples: int
) -> reference.Rows:
  """The rows before a sampler reorders them."""
  if recipe.kind == "mock":
    return reference.Mock(
      seed=recipe.seed,
      seq_length=recipe.seq_length,
      split_name=recipe.which,
      vocab_size=VOCAB_SIZE,
      extra=recipe.extra,
    )

  def make(number: int, size: int | None) -> reference.Source:
    return reference_source(recipe, prefixes, number, size)

  count = len(recipe.sources)
  if count == 1:
    return require([make(0, num_samples)], weighted=True)[0]
  weights = [source.weight for source in recipe.sources]
  blended = None if None in weights else weights
  if recipe.order == "megatron":
    # Whoever has no row for a few has none at all.
    few = 1 if blended else None
    require([make(i, few) for i in range(count)], bool(blended))
    return reference_orders.MegatronBlend(
      make,
      count=count,
      weights=blended,
      num_samples=num_samples,
      repeats=recipe.which == "train" and recipe.data_sharding is not None,
    )
  sources = [make(i, None) for i in range(count)]
  require(sources, bool(blended))
  if recipe.simple_blend == "inter":
    return reference.Inter(sources)
  if recipe.simple_blend == "intra":
    return reference.Intra(sources)
  return reference.Blend(sources, blended)


def require(
  sources: list[reference.Source], weighted: bool
) -> list[reference.Source]:
  """Returns the sources; raises NoRows if they have too little for a row."""
  sizes = [source.rows_per_epoch for source in sources]
  if not (all(sizes) if weighted else any(sizes)):
    raise NoRows(f"the sources have {sizes} rows")
  return sources


def draw_map(
  recipe: Recipe, num_rows: int
) -> list[int] | dict[int, int] | None:
  """A map of the kind that the recipe says, over the rows of an epoch."""
  rng = random.Random(recipe.seed)
  if recipe.order_map is None:
    return None
  if recipe.order_map == "whole":
    return rng.sample(range(num_rows), num_rows)
  if recipe.order_map == "short":
    return rng.sample(range(num_rows), rng.randint(1, num_rows))
  if recipe.order_map == "repeating":
    return rng.choices(range(num_rows), k=num_rows + 3)
  places = rng.sample(range(num_rows), min(num_rows, 3))
  return {place: rng.randrange(num_rows) for place in places}


def write_map(
  recipe: Recipe, leg: Leg, num_rows: int, path: Path
) -> str | tuple[int, ...]:
  """Writes the map as the leg wants it; returns what the config says."""
  order_map = draw_map(recipe, num_rows)
  assert order_map is not None
  if isinstance(order_map, dict) or leg.map_form == "json":
    path = path.with_suffix(".json")
    path.write_text(json.dumps(order_map))
  elif leg.map_form == "npy":
    path = path.with_suffix(".npy")
    np.save(path, np.array(order_map, np.int32))
  else:
    return tuple(order_map)
  return str(path)


def asked_samples(recipe: Recipe, leg: Leg) -> int:
  """For how many rows a run that begins with the leg makes its order."""
  if recipe.which == "train":
    return recipe.train_samples or leg.asked_rows
  return recipe.eval_iters * leg.batch_size


def require_rows(recipe: Recipe, prefixes: Sequence[str], leg: Leg) -> None:
  """Raises NoRows if a split that is built has too little data for a row."""
  if not recipe.split:
    return
  bounds = reference.split_bounds(recipe.split, 1)
  for which, needed in (("train", True), ("valid", recipe.eval_iters)):
    if needed and bounds[reference.SPLIT_NAMES.index(which)]:
      split = dataclasses.replace(recipe, which=which)
      unsampled_rows(split, prefixes, asked_samples(split, leg))


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
  recipe: Recipe,
  leg: Leg,
  prefixes: Sequence[str],
  *,
  first_row: int,
  order_map: str | tuple[int, ...] | None = None,
  cache: Path | None = None,
) -> mlc.ConfigDict:
  """The configuration of one leg."""
  dataset: dict[str, Any] = {
    "kind": "indexed",
    "data_config": {
      "seq_length": recipe.seq_length,
      "mock_data": recipe.kind == "mock",
      "is_dataset_from_mr": recipe.kind == "precut",
      "simple_blend": recipe.simple_blend,
      "order": recipe.order,
      "create_ltor_fields_in_dataloader": recipe.ltor,
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
  if leg.cached:
    dataset["data_config"]["data_cache_path"] = str(cache)
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
    "consumed_samples": first_row,
    "prefetch": leg.prefetch,
  }
  for name, value in (
    ("sampler_type", recipe.sampler_type),
    ("epochs", recipe.epochs),
    ("end_of_data", recipe.end_of_data),
    ("data_sharding", recipe.data_sharding),
    ("data_rearrange_map", order_map),
  ):
    if value is not None:
      dataloader[name] = value
  return mlc.ConfigDict(
    {
      "training": {
        "global_batch_size": leg.batch_size,
        "seed": recipe.seed,
        "eval_iters": recipe.eval_iters,
        "train_iters": leg.train_iters,
        **(
          {"train_samples": recipe.train_samples}
          if recipe.train_samples
          else {}
        ),
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
        "context_parallel_layout": leg.layout,
      },
    }
  )


def num_epochs(recipe: Recipe) -> int | None:
  """How many epochs the rows have; None = endless."""
  if recipe.kind == "mock":
    return None
  if recipe.which != "train" or recipe.reads_one_epoch:
    return 1
  return recipe.epochs


class AskedOnly:
  """The rows of Megatron's index that were asked for, and no more."""

  def __init__(self, rows: reference.Rows, num_samples: int):
    self._rows, self._num_samples = rows, num_samples

  def row(self, i: int) -> reference.Row:
    return self._rows.row(i)

  def num_rows(self, epochs: int | None) -> int | None:
    return min(self._rows.num_rows(epochs), self._num_samples)


def reads_asked_only(recipe: Recipe) -> bool:
  """Whether a run ends with the rows it asked for."""
  megatron = recipe.order == "megatron" and recipe.which == "train"
  return megatron and recipe.reads_one_epoch and not recipe.order_map


def expected_batches(
  recipe: Recipe,
  rows: reference.Rows,
  *,
  first_row: int,
  batch_size: int,
  num_samples: int,
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
  """The reference's batches from a row on."""
  train = recipe.which == "train"
  if reads_asked_only(recipe):
    rows = AskedOnly(rows, num_samples)
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
      ltor=recipe.ltor,
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
        context=spec.layout.context,
      )
      parts, _ = batches_lib.make_shards(
        spec.samples,
        layout,
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
  require_rows(recipe, prefixes, legs[0])
  num_samples = asked_samples(recipe, legs[0])
  rows = reference_rows(recipe, prefixes, num_samples)
  row, state, compared = recipe.first_row, None, 0
  for number, leg in enumerate(legs):
    if leg.moved:
      prefixes = move(prefixes, folder / f"leg{number}")
    order_map = None
    if recipe.order_map and recipe.which == "train":
      num_rows = unsampled_rows(recipe, prefixes, num_samples).num_rows(1)
      order_map = write_map(recipe, leg, num_rows, folder / f"map{number}")
    config = make_config(
      recipe,
      leg,
      prefixes,
      first_row=0 if state else recipe.first_row,
      order_map=order_map,
      cache=folder / "cache",
    )
    mesh = shard.make_mesh(tuple(leg.sizes), leg.sizes)
    slices = device_slices(leg, mesh, recipe.seq_length)
    loader = getattr(hpgrain.build(config, mesh), recipe.which)
    expected = expected_batches(
      recipe,
      rows,
      first_row=row,
      batch_size=leg.batch_size,
      num_samples=num_samples,
    )
    iterator = iter(loader)
    try:
      if state is not None:
        if asks_too_much(recipe, leg, num_samples):
          refuse(iterator, state)
          continue
        iterator.set_state(state)
      for step in range(leg.num_batches):
        where = f"leg {number}, batch {step} (row {row})"
        got, entry = next(iterator, None), next(expected, None)
        if got is None or entry is None:
          if (got is None) != (entry is None):
            raise Mismatch(f"{where}: the data ends too soon or too late")
          break
        after, want = entry
        want = reference_layouts.in_slots(want, leg.layout, leg.context_ranks)
        compare_placed(got, want, slices, where)
        if len(set(leg.processes)) > 1:
          compare_shares(
            iterator._spec, leg, want, slices, first_row=row, where=where
          )
        row, compared = after, compared + 1
      state = json.loads(json.dumps(iterator.get_state()))
    finally:
      iterator.close()
  return compared


def asks_too_much(recipe: Recipe, leg: Leg, num_samples: int) -> bool:
  """Whether a later leg asks for more rows than the first one left room for."""
  if recipe.order != "megatron" or recipe.which != "train":
    return False
  # Cycles never end, so that no run asks for too many of them.
  ends = recipe.train_samples is None and recipe.reads_one_epoch
  return ends and leg.asked_rows > num_samples


def refuse(iterator: Any, state: dict[str, Any]) -> None:
  """Raises Mismatch unless the state is refused, with a way out."""
  try:
    iterator.set_state(state)
  except ValueError as error:
    if 'order="stable"' in str(error):
      return
    raise
  raise Mismatch(f"{state} was taken by a run that asks for more")
