"""Paths of tokenized corpora in; train, valid and test rows out.

  data_path + split        each source is cut into three, then blended
  train_data_path, ...     each split has sources of its own, read whole

  documents of any length -> GPTSamples    \\
  records cut to the row  -> PrecutSamples   -> one source, or BlendSamples
  mock_data               -> MockSamples   /
"""

import dataclasses
import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import grain
import numpy as np

from hpgrain import token_ids
from hpgrain.blend_samples import BlendSamples
from hpgrain.data_paths import SourceSpec, parse_data_path
from hpgrain.lazy import LazySamples
from hpgrain.log import log_once
from hpgrain.manifest import Manifest, read_manifest
from hpgrain.mock import MockSamples
from hpgrain.precut import PrecutSamples
from hpgrain.samples import GPTSamples
from hpgrain.sources.indexed import IndexedReader, set_max_open_files
from hpgrain.splits import SPLIT_NAMES, parse_split
from hpgrain.token_ids import TokenIds

_WHOLE = "1,0,0"

_log = logging.getLogger(__name__)

Splits = tuple[
  grain.MapDataset | None, grain.MapDataset | None, grain.MapDataset | None
]


def build_indexed_text_dataset(**arguments: Any) -> Splits:
  """Builds the rows of tokenized corpora.

  Takes the arguments of `build_splits` by keyword.

  Returns:
    (train, valid, test): a `grain.MapDataset` of rows each, None where a
    split has no weight or no path.

  Raises:
    ValueError: for a path, a pair or a number that is not right.
  """
  return build_splits(**arguments)[0]


def build_splits(
  *,
  seed: int,
  seq_length: int,
  data_path: Any = None,
  train_data_path: Any = None,
  valid_data_path: Any = None,
  test_data_path: Any = None,
  split: str = "969, 30, 1",
  order: str = "stable",
  mock_data: bool = False,
  is_dataset_from_mr: bool = False,
  simple_blend: str | bool = "no",
  data_lazy_load: bool = False,
  skip_data_check: bool = False,
  add_extra_token_to_sequence: bool = True,
  drop_last_partial_validation_sequence: bool = True,
  create_ltor_fields_in_dataloader: bool = False,
  data_cache_path: str | None = None,
  data_index_cache: bool | None = None,
  contiguous: bool = True,
  mmap: bool = True,
  max_open_files: int = 512,
  vocab_size: int | None = None,
  eod_id: int | None = None,
  pad_id: int | None = None,
  tokenizer: Any = None,
) -> tuple[Splits, TokenIds]:
  """Builds the rows of each split, and what is known of their token ids.

  Args:
    seed: keys the order of train; valid and test are read in file order.
    seq_length: positions a row.
    data_path: sources shared by the splits: a prefix or folder, several, or
      with weights (`data_paths`).
    train_data_path: sources of train alone; excludes data_path and split.
    valid_data_path: the same for valid.
    test_data_path: the same for test.
    split: weights of train, valid and test over each source's sequences.
    order: "stable".
    mock_data: made-up rows; no path, and a vocab_size.
    is_dataset_from_mr: the sequences are records cut to the row's length.
    simple_blend: "no", "inter" or "intra"; the last two take pre-cut records
      without weights.
    data_lazy_load: open a source when it is first read.
    skip_data_check: trust the records' lengths, and allow records that were
      cut to be read as documents.
    add_extra_token_to_sequence: rows have a token more, the last label.
    drop_last_partial_validation_sequence: whether valid and test drop the
      tail that does not fill a row; otherwise it is padded.
    create_ltor_fields_in_dataloader: False; a batch carries these fields.
    data_cache_path: a folder for index caches; this order needs none.
    data_index_cache: known to the reference, has no meaning here.
    contiguous: whether sequences lie back to back in each `.bin`.
    mmap: whether to map the files; otherwise they are read with pread.
    max_open_files: mappings kept at a time.
    vocab_size: ids lie below it; default the tokenizer's or the manifest's.
    eod_id: ends a document; default as vocab_size.
    pad_id: must not occur in records; default as vocab_size.
    tokenizer: `tokenizer.TokenizerInfo` to check the corpora against.

  Returns:
    ((train, valid, test), token ids).

  Raises:
    ValueError: for a path, a pair or a number that is not right.
  """
  if create_ltor_fields_in_dataloader:
    raise ValueError(
      "create_ltor_fields_in_dataloader must be False: the batch carries"
      " loss_mask, position_ids and segment_ids already."
    )
  for key, value in (
    ("data_cache_path", data_cache_path),
    ("data_index_cache", data_index_cache),
  ):
    if value is not None:
      log_once(
        _log,
        logging.WARNING,
        '%s=%r has no effect: order="stable" builds no index to cache.',
        key,
        value,
      )
  paths = (train_data_path, valid_data_path, test_data_path)
  given = [path is not None for path in paths]
  if data_path is not None and any(given):
    raise ValueError(
      "data_path is shared out by `split`; train_data_path, valid_data_path"
      " and test_data_path each name a split of their own. Give one or the"
      " other."
    )
  known = {"vocab_size": vocab_size, "eod_id": eod_id, "pad_id": pad_id}
  if mock_data:
    if data_path is not None or any(given):
      raise ValueError(
        "mock_data=True reads no file, and a data path is given too. Leave"
        " one of them out."
      )
    ids = token_ids.resolve(tokenizer=tokenizer, manifests={}, **known)
    if ids.vocab_size is None:
      raise ValueError(
        "mock_data=True needs to know the vocabulary: set"
        " dataset.data_config.vocab_size or model_assets.tokenizer."
      )
    mocks = [
      None
      if weight == 0
      else MockSamples(
        seq_length=seq_length,
        seed=seed,
        vocab_size=ids.vocab_size,
        split_index=i,
        add_extra_token=add_extra_token_to_sequence,
      )
      for i, weight in enumerate(parse_split(split))
    ]
    return (mocks[0], mocks[1], mocks[2]), ids
  if data_path is None and not any(given):
    raise ValueError(
      "There is no data: set dataset.data_path to the prefix of an .idx/.bin"
      " pair, or dataset.train_data_path (and valid, test), or"
      " dataset.data_config.mock_data=True."
    )
  if simple_blend in ("inter", "intra") and not is_dataset_from_mr:
    raise ValueError(
      f"simple_blend={simple_blend!r} takes pre-cut records only: set"
      ' is_dataset_from_mr=True, or simple_blend="no".'
    )

  def sources_of(path: Any, key: str) -> list[SourceSpec]:
    specs = parse_data_path(path, key=key)
    if simple_blend in ("inter", "intra") and isinstance(path, str):
      # A folder's files all weigh 1; nobody gave them weights to refuse.
      return [dataclasses.replace(spec, weight=None) for spec in specs]
    return specs

  # (sources, split weights, split index) of each split, or None.
  wanted: list[tuple[list[SourceSpec], str, int] | None] = []
  if data_path is not None:
    specs = sources_of(data_path, "data_path")
    for i, weight in enumerate(parse_split(split)):
      wanted.append((specs, split, i) if weight else None)
  else:
    for name, path in zip(SPLIT_NAMES, paths):
      key = f"{name}_data_path"
      wanted.append(
        None if path is None else (sources_of(path, key), _WHOLE, 0)
      )

  set_max_open_files(max_open_files)
  manifests = _manifests([entry[0] for entry in wanted if entry])
  ids = token_ids.resolve(tokenizer=tokenizer, manifests=manifests, **known)
  open_source = _Opener(
    manifests=manifests,
    ids=ids,
    mmap=mmap,
    skip_data_check=skip_data_check,
    is_dataset_from_mr=is_dataset_from_mr,
    common={
      "seq_length": seq_length,
      "seed": seed,
      "add_extra_token": add_extra_token_to_sequence,
      "vocab_size": ids.vocab_size,
    },
    order=order,
    contiguous=contiguous,
    readers={},
  )
  built: list[grain.MapDataset | None] = []
  for i, entry in enumerate(wanted):
    if entry is None:
      built.append(None)
      continue
    specs, weights, index = entry
    train = i == 0
    opening = functools.partial(
      open_source,
      split=weights,
      split_index=index,
      shuffle=train,
      drop_last=train or drop_last_partial_validation_sequence,
    )
    members = [
      LazySamples(functools.partial(opening, spec), spec.name)
      if data_lazy_load
      else opening(spec)
      for spec in specs
    ]
    built.append(_join(members, specs, simple_blend or "no"))
    _log.info(
      "%s: %d sources of %s",
      SPLIT_NAMES[i],
      len(specs),
      "pre-cut records" if is_dataset_from_mr else "documents",
    )
  return (built[0], built[1], built[2]), ids


@dataclasses.dataclass(frozen=True)
class _Opener:
  """Opens one split of one source; a source's splits share its reader."""

  manifests: Mapping[str, Manifest]
  ids: TokenIds
  mmap: bool
  skip_data_check: bool
  is_dataset_from_mr: bool
  common: Mapping[str, Any]
  order: str
  contiguous: bool
  readers: dict[str, IndexedReader]

  def __call__(
    self,
    spec: SourceSpec,
    *,
    split: str,
    split_index: int,
    shuffle: bool,
    drop_last: bool,
  ) -> GPTSamples | PrecutSamples:
    reader = self.readers.get(spec.path)
    if reader is None:
      reader = IndexedReader(spec.path, mmap=self.mmap)
      self.readers[spec.path] = reader
    arguments = {
      **self.common,
      "split": split,
      "split_index": split_index,
      "shuffle": shuffle,
      "name": spec.name,
    }
    manifest = self.manifests.get(spec.path)
    if self.is_dataset_from_mr:
      return PrecutSamples(
        reader,
        eod_id=self.ids.eod_id,
        pad_id=self.ids.pad_id,
        skip_data_check=self.skip_data_check,
        **arguments,
      )
    if not self.skip_data_check:
      row = self.common["seq_length"] + int(self.common["add_extra_token"])
      _refuse_cut_records(reader, manifest, row)
    return GPTSamples(
      reader,
      order=self.order,
      drop_last=drop_last,
      contiguous=self.contiguous,
      **arguments,
    )


def _manifests(groups: Sequence[Sequence[SourceSpec]]) -> dict[str, Manifest]:
  """Returns the manifests there are, by prefix."""
  found = {}
  for spec in (spec for group in groups for spec in group):
    if spec.path not in found:
      manifest = read_manifest(spec.path)
      if manifest is not None:
        found[spec.path] = manifest
  return found


def _join(
  members: list[Any], specs: Sequence[SourceSpec], simple_blend: str
) -> grain.MapDataset:
  """Returns one source as it is, several as a blend."""
  if len(members) == 1:
    return members[0]
  weights = [spec.weight for spec in specs]
  if any(weight is None for weight in weights):
    weights = None
  return BlendSamples(members, weights=weights, simple_blend=simple_blend)


def _refuse_cut_records(
  reader: IndexedReader, manifest: Manifest | None, row: int
) -> None:
  """Raises ValueError if a corpus of documents holds records cut to the row.

  The manifest knows; without one, all lengths being equal to the row's gives
  it away. A few are looked at before all are.
  """
  advice = (
    "Set dataset.data_config.is_dataset_from_mr=True to read them as the rows"
    " they are, or skip_data_check=True to cut new rows across them."
  )
  if manifest is not None and manifest.pack_to_seq_len is not None:
    raise ValueError(
      f"{reader.prefix} holds records that were cut to"
      f" {manifest.pack_to_seq_len} + 1 tokens (its manifest says), and"
      f" is_dataset_from_mr is False. {advice}"
    )
  count = len(reader)
  if manifest is not None or count < 2:
    return
  lengths = reader.lengths
  probes = np.linspace(0, count - 1, min(count, 64)).astype(np.int64)
  if (lengths[probes] == row).all() and (np.asarray(lengths) == row).all():
    raise ValueError(
      f"All {count} sequences of {reader.prefix} have {row} tokens, exactly a"
      " row: they look like records that were cut offline, and"
      f" is_dataset_from_mr is False. {advice}"
    )
