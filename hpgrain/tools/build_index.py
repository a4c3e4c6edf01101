r"""Builds what a run's order needs into its index cache, ahead of the run.

Command to run:

python -m hpgrain.tools.build_index --config=configs/megatron.py \
    --workdir=/tmp/megatron \
    --config.dataset.data_config.data_cache_path=/tmp/index

The config, and what is set after it, are those of launch/train.py: a run with
the same ones finds every index in dataset.data_config.data_cache_path and
builds none. No device is used, so a small machine without accelerators can do
it while the large ones are not there yet. Several may run at once, on one
folder, for one config or for many; what is there is not built again.

Indices depend on the corpora, the seed, the split and seq_length, and with
dataset.data_config.order=megatron on how many rows are asked for:
training.train_samples, or train_iters x global_batch_size where that is unset.
A run that goes on from a checkpoint keeps the number it began with.
Of records that are tokenized while training, their lengths are found, which
tokenizes them all once; several processes on one folder share the work.

Exit codes: 0 all is there, 1 something is wrong and a line on stderr says what,
or an index could not be kept.
"""

import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from hpgrain import indexed_dataset, pipeline
from hpgrain.config import with_workdir
from hpgrain.config_rules_online import dataset_options, transform_arguments
from hpgrain.config_uses import is_online
from hpgrain.index_cache import CacheEvent, IndexCache
from hpgrain.measured import MeasuredRecords
from hpgrain.online_dataset import build_online_text_dataset
from hpgrain.splits import SPLIT_NAMES
from hpgrain.tools import embedded_example
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer
from hpgrain.transforms.make import make_transform

_CACHE_PATH = "dataset.data_config.data_cache_path"

_LINE = "{:<16} {:<5} {:>12} {:>9}  {:<8}  {}"


@dataclasses.dataclass(frozen=True)
class BuiltIndex:
  """An index that a split needs.

  Attributes:
    split: "train", "valid" or "test".
    source: the corpus's name; None where it is of a whole blend.
    event: what the cache did.
  """

  split: str
  source: str | None
  event: CacheEvent


def build_indices(
  config: ConfigDict, *, epochs: int = 1
) -> Iterator[BuiltIndex]:
  """Builds the indices of a run, and tells of each when it is there.

  Args:
    config: what `hpgrain.config.check` returned, with a data_cache_path.
    epochs: how many epochs of train to build for, where each has its own.

  Raises:
    ValueError: for no data_cache_path, or data that is not sound.
  """
  data = config.dataset.data_config
  if data.data_cache_path is None:
    raise ValueError(
      f"{_CACHE_PATH} is unset, so there is nowhere to keep an index. Set it in"
      f" the config, or give --config.{_CACHE_PATH}=DIR, here and to the run."
    )
  if is_online(config):
    # Streams look at no record before its turn.
    yield from _lengths(config) if data.lengths == "table" else ()
    return
  splits, _ = indexed_dataset.build_splits(**pipeline.dataset_arguments(config))
  num_told = 0
  for split, source, cache in _stages(splits, epochs):
    events = cache.events[num_told:]
    num_told += len(events)
    for event in events:
      yield BuiltIndex(split, source, event)


def _lengths(config: ConfigDict) -> Iterator[BuiltIndex]:
  """Finds the lengths of each source's examples."""
  data, name = config.dataset.data_config, config.model_assets.tokenizer
  tokenizer = None
  if name.pretrained_model_name_or_path is not None:
    tokenizer = LazyTokenizer(
      name.pretrained_model_name_or_path,
      use_fast=name.use_fast,
      trust_remote_code=name.trust_remote_code,
    )
  cache = IndexCache(data.data_cache_path)
  splits = build_online_text_dataset(**vars(dataset_options(config)))
  for split, dataset in zip(SPLIT_NAMES, splits):
    for source in () if dataset is None else dataset.sources:
      measured = MeasuredRecords(
        source,
        make_transform(tokenizer=tokenizer, **transform_arguments(config)),
        cache=cache,
        keep_tokens=data.keep_tokens,
        one_example_each=config.dataloader.type == "fixed",
      )
      start, num_told = time.monotonic(), len(cache.events)
      measured.measure()
      seconds = time.monotonic() - start
      built = cache.events[num_told:]
      path = built[-1].path if built else cache.folder
      yield BuiltIndex(
        split,
        measured.name,
        CacheEvent("lengths", path, bool(built), seconds, _num_bytes(measured)),
      )


def _num_bytes(measured: MeasuredRecords) -> int:
  """Bytes of the lengths of a source, four an example."""
  if not measured.num_records:
    return 0
  first, count = measured.examples(np.array([measured.num_records - 1]))
  return 4 * int(first[0] + count[0])


def _stages(
  splits: indexed_dataset.Splits, epochs: int
) -> Iterator[tuple[str, str | None, IndexCache]]:
  """Builds what each source needs, one after the other."""
  for split, samples in zip(SPLIT_NAMES, splits):
    if samples is None:
      continue
    if not len(samples):
      if split == "train":
        # Planning a row says what is missing.
        samples.plan(0)
      continue
    # Of a blend, asking for them builds the index that says how large they
    # must be.
    members = getattr(samples, "members", None)
    for member in members or (samples,):
      if not hasattr(member, "cache"):
        # Pre-cut and made-up rows.
        return
      if members:
        yield split, None, member.cache
      member.build_index(epochs if split == "train" else 1)
      yield split, member.sources[0].name, member.cache
    if members:
      samples.rows_per_source(0)
      yield split, None, members[0].cache


def _print_table(built: Iterator[BuiltIndex]) -> bool:
  """Prints a line an index as it comes; returns whether all are kept."""
  start = time.monotonic()
  events: list[CacheEvent] = []
  for index in built:
    if not events:
      print(_LINE.format("kind", "split", "MB", "seconds", "state", "source"))
    event = index.event
    events.append(event)
    state = "there"
    if event.built:
      state = "built" if event.path else "NOT KEPT"
    print(
      _LINE.format(
        event.kind,
        index.split,
        f"{event.num_bytes / 1e6:,.3f}",
        f"{event.seconds:,.2f}",
        state,
        index.source or "(the blend)",
      ),
      flush=True,
    )
  if not events:
    print("nothing to build: the rows of this config need no index")
    return True
  num_built = sum(event.built for event in events)
  print(
    f"{len(events)} indices, {num_built} built and {len(events) - num_built}"
    f" there, {sum(event.num_bytes for event in events) / 1e6:,.3f} MB, in"
    f" {time.monotonic() - start:,.1f} s"
  )
  return all(event.path for event in events)


def main(argv: Sequence[str]) -> int:
  """Runs the command line; returns the exit code."""
  if len(argv) > 1:
    raise app.UsageError(f"Flags only, got {argv[1:]}.")
  values = flags.FLAGS
  if not values["verbosity"].present:
    # The table says as much; --verbosity=0 shows files and times.
    logging.set_verbosity(logging.WARNING)
  try:
    workdir = values.workdir
    if workdir is not None:
      workdir = str(Path(workdir).expanduser().resolve())
    config = with_workdir(values.config, workdir)
    if config.prepare == "embedded_example" and workdir is not None:
      embedded_example.prepare(f"{workdir}/data")
    kept = _print_table(build_indices(config, epochs=values.epochs))
    folder = config.dataset.data_config.data_cache_path
    print(f"data_cache_path is {folder}")
  except (OSError, ValueError) as error:
    print(f"build_index: {type(error).__name__}: {error}", file=sys.stderr)
    return 1
  return 0 if kept else 1


def _define_flags() -> None:
  # Not as this module is imported: launch/train.py has flags of these names.
  config_flags.DEFINE_config_file(
    "config",
    None,
    "The experiment: a file of configs/, with an argument after a colon where"
    " it takes one. Any key can be set after it, such as"
    f" --config.{_CACHE_PATH}=DIR.",
    lock_config=True,
  )
  flags.DEFINE_string(
    "workdir",
    None,
    "The run's folder, where the config has files in {workdir}.",
  )
  flags.DEFINE_integer(
    "epochs",
    1,
    "How many epochs of train to build for, with order=documents, which has an"
    " index for each. More are built as the run reaches them.",
    lower_bound=1,
  )
  flags.mark_flag_as_required("config")


if __name__ == "__main__":
  _define_flags()
  app.run(main)
