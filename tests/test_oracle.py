"""Megatron-core itself beside order="megatron", on random small corpora.

Runs only where the extra `oracle` is installed; golden arrays stand in for it
elsewhere (`test_megatron`). HPGRAIN_ORACLE_CASES asks for more cases.

Where Megatron is known to be wrong, its answer is not asked for: a split
without tokens (it looks for epochs for ever), and a kept tail that ends in
empty documents (its last offset is negative). Its float32 ceil needs more
tokens than there are here. A blend that it stops for a member too small is
checked to be whole here.
"""

import dataclasses
import os
import random
import warnings
from pathlib import Path
from typing import Any

import corpora
import numpy as np
import pytest
import reference

import hpgrain

_REASON = "needs Megatron-core: pip install 'hpgrain[oracle]'"
pytest.importorskip("torch", reason=_REASON)
with warnings.catch_warnings():
  # About kernels that a data set has no use for.
  warnings.simplefilter("ignore")
  pytest.importorskip("megatron.core.datasets.gpt_dataset", reason=_REASON)

from megatron.core.datasets import (  # noqa: E402
  blended_megatron_dataset_builder as builder,
)
from megatron.core.datasets import gpt_dataset, helpers  # noqa: E402

CASES = int(os.environ.get("HPGRAIN_ORACLE_CASES", "30"))
EOD, VOCAB_SIZE = 0, 100
SPLITS = ("1", "1", "2,1,1", "0,1,2", ".6, .4", "8,1,1", "1, 0, 1")

# Rows of which every field is compared.
ITEMS = 40


class Tokenizer:
  """What Megatron asks of one; it has no padding id."""

  eod = EOD
  vocab_size = VOCAB_SIZE
  unique_identifiers = {"class": "Tokenizer"}  # noqa: RUF012


@dataclasses.dataclass(frozen=True)
class Case:
  """What both are asked for.

  `paths` holds each split's prefixes and weights, all alike where `split` cuts
  them; `num_samples` is one a split.
  """

  paths: list[tuple[list[str], list[float] | None] | None]
  split: str | None
  num_samples: list[int | None]
  seed: int
  seq_length: int
  extra: bool
  drop_last: bool
  reset_position_ids: bool
  reset_attention_mask: bool
  eod_mask_loss: bool
  mmap: bool


def draw_case(rng: random.Random, folder: Path) -> Case:
  """Draws a case that Megatron can answer, and writes its corpora."""
  extra, drop_last = rng.random() < 0.7, rng.random() < 0.5
  seq_length = rng.randint(1, 12)
  split = rng.choice(SPLITS) if rng.random() < 0.7 else None
  shared = draw_sources(rng, folder / "shared", split, seq_length)
  paths, num_samples = [], []
  for index in range(3):
    prefixes, weights, sizes = shared
    if split is None:
      own = folder / f"split{index}"
      prefixes, weights, sizes = draw_sources(rng, own, None, seq_length)
    given = split is not None or index == 0 or rng.random() < 0.7
    paths.append((prefixes, weights) if given else None)
    tokens = [
      sum(lengths[slice(*bounds)])
      for lengths in sizes
      if (bounds := bounds_of(split, index, len(lengths)))
    ]
    num_samples.append(
      draw_size(rng, sum(n // seq_length for n in tokens), weights)
    )
  flags = [rng.random() < 0.5 for _ in range(4)]
  return Case(
    paths,
    split,
    num_samples,
    rng.choice((0, 1234, 2**32 - 1)),
    seq_length,
    extra,
    drop_last,
    *flags,
  )


def bounds_of(
  split: str | None, index: int, count: int
) -> tuple[int, int] | None:
  """Returns which of `count` sequences a split has; all where it is whole."""
  if split is None:
    return 0, count
  return reference.split_bounds(split, count)[index]


def draw_size(
  rng: random.Random, rows: int, weights: list[float] | None
) -> int | None:
  """Draws how many rows to ask for where an epoch has about `rows`."""
  if weights is None and rng.random() < 0.3:
    return None
  telling = (0, 1, rows, rows + 1, 2 * rows, max(3 * rows - 1, 0))
  most = 4 * rows + 2
  return min(rng.choice((*telling, *(rng.randint(0, most),) * 3)), 500)


def draw_sources(
  rng: random.Random, folder: Path, split: str | None, seq_length: int
) -> tuple[list[str], list[float] | None, list[list[int]]]:
  """Returns prefixes, weights and the lengths of their sequences.

  Every split of every source has tokens; where sources are drawn by size,
  enough for a row.
  """
  folder.mkdir()
  count = rng.choice((1, 1, 2, 3, 4))
  weights = None
  if count > 1 and rng.random() < 0.6:
    kind = rng.choice((int, float))
    weights = [
      kind(rng.choice((1, 3, 30, 70)) if kind is int else rng.random() + 1e-3)
      for _ in range(count)
    ]
  least = 1 if weights or count == 1 else seq_length + 1
  prefixes, sizes = [], []
  for number in range(count):
    while True:
      documents = corpora.random_documents(
        rng, num_documents=rng.choice((1, 3, 9, 40)), max_length=20
      )
      lengths = [len(s) for document in documents for s in document]
      bounds = reference.split_bounds(split or "1", len(lengths))
      if all(sum(lengths[a:b]) >= least for a, b in filter(None, bounds)):
        break
    prefix = corpora.write_pair(
      folder / f"corpus{number}",
      documents,
      dtype=rng.choice(sorted(corpora.DTYPE_CODES)),
    )
    prefixes.append(prefix)
    sizes.append(lengths)
  return prefixes, weights, sizes


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
  """Lets a negative offset pass, so that the splits beside it are compared."""

  def build(*arguments):
    *numbers, extra = arguments
    return helpers.build_sample_idx_int32(*numbers, int(extra))

  monkeypatch.setattr(helpers, "build_sample_idx", build)


def megatron_splits(case: Case) -> list[Any]:
  """Builds train, valid and test with Megatron's own builder."""
  shared = case.split is not None
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    config = gpt_dataset.GPTDatasetConfig(
      random_seed=case.seed,
      sequence_length=case.seq_length,
      blend=case.paths[0] if shared else None,
      blend_per_split=None if shared else case.paths,
      split=case.split,
      tokenizer=Tokenizer(),
      reset_position_ids=case.reset_position_ids,
      reset_attention_mask=case.reset_attention_mask,
      eod_mask_loss=case.eod_mask_loss,
      drop_last_partial_validation_sequence=case.drop_last,
      add_extra_token_to_sequence=case.extra,
      mmap_bin_files=case.mmap,
    )
    return builder.BlendedMegatronDatasetBuilder(
      gpt_dataset.GPTDataset, case.num_samples, lambda: True, config
    ).build()


def our_splits(case: Case) -> tuple[Any, ...]:
  """Builds the same with this package."""
  paths = [path and data_path(*path) for path in case.paths]
  if case.split is None:
    given = dict(
      zip(("train_data_path", "valid_data_path", "test_data_path"), paths)
    )
  else:
    given = {"data_path": paths[0], "split": case.split}
  return hpgrain.build_indexed_text_dataset(
    **given,
    order="megatron",
    num_samples=tuple(case.num_samples),
    seed=case.seed,
    seq_length=case.seq_length,
    add_extra_token_to_sequence=case.extra,
    drop_last_partial_validation_sequence=case.drop_last,
    create_ltor_fields_in_dataloader=True,
    reset_position_ids=case.reset_position_ids,
    reset_attention_mask=case.reset_attention_mask,
    eod_mask_loss=case.eod_mask_loss,
    mmap=case.mmap,
    vocab_size=VOCAB_SIZE,
    eod_id=EOD,
    skip_data_check=True,
  )


def data_path(prefixes: list[str], weights: list[float] | None) -> Any:
  if weights is None:
    return tuple(prefixes)
  return tuple(x for pair in zip(weights, prefixes) for x in pair)


def check_index(theirs: Any, ours: Any) -> int | None:
  """Compares the three indices; returns a row of Megatron's that is wrong."""
  for name in ("document_index", "shuffle_index"):
    got, want = getattr(ours, name), getattr(theirs, name)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype, name
  got, want = ours.sample_index, theirs.sample_index
  assert got.dtype == want.dtype
  assert len(ours) == len(theirs) == len(got) - 1
  wrong = None
  lengths = theirs.dataset.sequence_lengths[theirs.document_index]
  if len(want) > 1 and not lengths[want[-1, 0]]:
    # Empty documents end the index. Ours ends where the tokens do.
    place, offset = got[-1]
    assert place == np.flatnonzero(lengths)[-1]
    assert offset == lengths[place] - ours.extra
    if want[-1, 1] < 0:
      last = len(theirs) - 1
      wrong = int(np.flatnonzero(theirs.shuffle_index == last)[0])
    got, want = got[:-1], want[:-1]
  np.testing.assert_array_equal(got, want)
  return wrong


def check_item(theirs: Any, ours: Any, row: int) -> None:
  """Compares every field of one row."""
  got = ours[row]
  want = {name: np.asarray(value) for name, value in theirs[row].items()}
  assert got.keys() == want.keys()
  # Megatron's padding is 0 with no loss, as are tokens without a label.
  unlabelled = got["labels"] < 0
  assert not want["loss_mask"][unlabelled].any()
  got["labels"] = np.where(unlabelled, 0, got["labels"])
  for name, value in want.items():
    np.testing.assert_array_equal(got[name], value, err_msg=f"{row}: {name}")


def check_samples(theirs: Any, ours: Any, rng: random.Random) -> None:
  """Compares one split of one source."""
  wrong = check_index(theirs, ours)
  # It keeps masks from row to row, padding's zeros among them.
  theirs.masks_and_position_ids_are_cacheable = False
  rows = rng.sample(range(len(theirs)), min(ITEMS, len(theirs)))
  for row in set(rows) - {wrong}:
    check_item(theirs, ours, row)


def check_blend(theirs: Any, ours: Any, rng: random.Random) -> None:
  """Compares one split of several sources."""
  assert len(ours) == len(theirs)
  wrong = set()
  for number, member in enumerate(theirs.datasets):
    row = check_index(member, ours.members[number])
    member.masks_and_position_ids_are_cacheable = False
    wrong.add((number, row))
  if not len(theirs):
    return
  plans = ours.plan_rows(np.arange(len(theirs)))
  source = plans.source[plans.row_splits[:-1]]
  np.testing.assert_array_equal(source, theirs.dataset_index)
  for number, member in enumerate(ours.members):
    rows = np.flatnonzero(theirs.dataset_index == number)
    alone = member.plan_rows(theirs.dataset_sample_index[rows])
    pieces = np.isin(plans.source, number)
    for name in ("sequence", "offset", "length"):
      np.testing.assert_array_equal(
        getattr(plans, name)[pieces], getattr(alone, name)
      )
  for row in rng.sample(range(len(theirs)), min(ITEMS, len(theirs))):
    member = int(theirs.dataset_index[row])
    if (member, int(theirs.dataset_sample_index[row])) not in wrong:
      check_item(theirs, ours, row)


@pytest.mark.parametrize("number", range(CASES))
def test_rows_are_megatron_s(number, tmp_path):
  rng = random.Random(number)
  case = draw_case(rng, tmp_path)
  ours = our_splits(case)
  try:
    theirs = megatron_splits(case)
  except IndexError as error:
    assert "oversamples the contributing datasets" in str(error)
    check_oversampled(case, ours)
    return
  for split, made in enumerate(theirs):
    if made is None:
      assert ours[split] is None
    elif isinstance(made, gpt_dataset.GPTDataset):
      check_samples(made, ours[split], rng)
    else:
      check_blend(made, ours[split], rng)


def check_oversampled(case: Case, ours: tuple[Any, ...]) -> None:
  """Checks that no row of a blend is missing where Megatron gives up."""
  for samples, path, size in zip(ours, case.paths, case.num_samples):
    if samples is None or len(path[0]) == 1:
      continue
    assert len(samples) >= size
    source = samples.plan_rows(np.arange(len(samples))).source
    for number, member in enumerate(samples.members):
      assert len(member) >= (source == number).sum() > 0 or size == 0
