"""Paths of tokenized corpora in; train, valid and test rows out.

data_path + split        each source is cut into three, then blended
train_data_path, ...     each split has sources of its own, read whole

arguments -> options -> sources of each split -> samples -> blend
mock_data ----------------------------------------> MockSamples
"""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import grain

from hpgrain import token_ids
from hpgrain.blend_samples import BlendSamples
from hpgrain.data_paths import SourceSpec, parse_data_path, read_entries
from hpgrain.dataset_options import (
  DatasetOptions,
  read_options,
  signature,
  split_samples,
)
from hpgrain.index_cache import IndexCache
from hpgrain.lazy import LazySamples
from hpgrain.log import log_once
from hpgrain.manifest import Manifest, read_manifest
from hpgrain.megatron_blend import MegatronMix
from hpgrain.mixes import Mix, plain_mix
from hpgrain.mock import MockSamples
from hpgrain.source_opener import SourceOpener
from hpgrain.sources.indexed import set_max_open_files
from hpgrain.splits import SPLIT_NAMES, parse_split
from hpgrain.token_ids import TokenIds

_WHOLE = "1,0,0"

_log = logging.getLogger(__name__)

Splits = tuple[
  grain.MapDataset | None, grain.MapDataset | None, grain.MapDataset | None
]


def build_indexed_text_dataset(**arguments: Any) -> Splits:
  """Builds the rows of tokenized corpora.

  Args:
    seed: keys the order of train; valid and test are read in file order.
    seq_length: positions a row.
    data_path: sources shared by the splits: a prefix or folder, several, or
      with weights (`data_paths`).
    train_data_path: sources of train alone; excludes data_path and split.
    valid_data_path: the same for valid.
    test_data_path: the same for test.
    split: weights of train, valid and test over each source's sequences.
    order: "stable", "documents" or "megatron" (`samples`).
    num_samples: rows asked for, in Megatron's order: of train, or of train,
      valid and test; None is one epoch.
    data_sharding: number of buckets that train's rows take turns in.
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
    create_ltor_fields_in_dataloader: whether rows have Megatron's
      attention_mask, loss_mask and position_ids (`ltor`).
    data_cache_path: a folder for index caches; unset builds indices in memory.
    data_index_cache: known to the reference, has no meaning here.
    contiguous: whether sequences lie back to back in each `.bin`.
    mmap: whether to map the files; otherwise they are read with pread.
    max_open_files: mappings that the whole process keeps at a time.
    vocab_size: ids lie below it; default the tokenizer's or the manifest's.
    eod_id: ends a document; default as vocab_size.
    pad_id: must not occur in records; default as vocab_size.
    reset_position_ids: of the ltor fields: positions begin anew after each
      end-of-document id.
    reset_attention_mask: of the same: nothing attends across one.
    eod_mask_loss: of the same: no loss where the input is one.
    tokenizer: `tokenizer.TokenizerInfo` to check the corpora against.

  Returns:
    (train, valid, test): a `grain.MapDataset` of rows each, None where a
    split has no weight or no path.

  Raises:
    ValueError: for an argument there is none of, or a path, a pair or a value
      that is not right.
  """
  return build_splits(**arguments)[0]


def build_splits(**arguments: Any) -> tuple[Splits, TokenIds]:
  """Does `build_indexed_text_dataset`, and says what is known of token ids."""
  options = read_options(arguments)
  _say_what_has_no_effect(options)
  if options.mock_data:
    return _build_mock(options)
  shares, manifests, ids = _sources(options)
  cache = IndexCache(options.data_cache_path)
  opener = SourceOpener(
    options=options, manifests=manifests, ids=ids, cache=cache
  )
  train, valid, test = (
    _build_split(name, share, opener, num_samples)
    for name, share, num_samples in zip(
      SPLIT_NAMES, shares, split_samples(options)
    )
  )
  return (train, valid, test), ids


def open_shares(
  **arguments: Any,
) -> tuple[DatasetOptions, list["Share | None"], TokenIds]:
  """Returns what `build_splits` builds from: options, sources and ids."""
  options = read_options(arguments)
  shares, _, ids = _sources(options)
  return options, shares, ids


def _sources(
  options: DatasetOptions,
) -> tuple[list["Share | None"], dict[str, Manifest], TokenIds]:
  shares = _shares(options)
  set_max_open_files(options.max_open_files)
  manifests = _manifests([share for share in shares if share])
  return shares, manifests, _resolve_ids(options, manifests)


build_indexed_text_dataset.__signature__ = signature(Splits)
build_splits.__signature__ = signature(tuple[Splits, TokenIds])


@dataclasses.dataclass(frozen=True)
class Share:
  """What one split reads: its sources, and which part of each."""

  specs: list[SourceSpec]
  split: str
  split_index: int


def _say_what_has_no_effect(options: DatasetOptions) -> None:
  if options.data_index_cache is not None:
    log_once(
      _log,
      logging.WARNING,
      "data_index_cache=%r has no effect: every process finds or builds an"
      " index by itself, and data_cache_path says where it is kept.",
      options.data_index_cache,
    )
  no_index = options.order == "stable" and options.contiguous
  if options.data_cache_path is not None and no_index:
    log_once(
      _log,
      logging.WARNING,
      'data_cache_path=%r has no effect: order="stable" builds no index to'
      " cache.",
      options.data_cache_path,
    )


def _resolve_ids(
  options: DatasetOptions, manifests: dict[str, Manifest]
) -> TokenIds:
  return token_ids.resolve(
    tokenizer=options.tokenizer,
    manifests=manifests,
    vocab_size=options.vocab_size,
    eod_id=options.eod_id,
    pad_id=options.pad_id,
  )


def _build_mock(options: DatasetOptions) -> tuple[Splits, TokenIds]:
  ids = _resolve_ids(options, {})
  if ids.vocab_size is None:
    raise ValueError(
      "mock_data=True needs to know the vocabulary: set"
      " dataset.data_config.vocab_size or model_assets.tokenizer."
    )
  train, valid, test = (
    MockSamples(
      seq_length=options.seq_length,
      seed=options.seed,
      vocab_size=ids.vocab_size,
      split_index=i,
      add_extra_token=options.add_extra_token_to_sequence,
    )
    if weight
    else None
    for i, weight in enumerate(parse_split(options.split))
  )
  return (train, valid, test), ids


def _shares(options: DatasetOptions) -> list[Share | None]:
  """Returns what train, valid and test read; None for nothing."""
  if options.data_path is None:
    return [
      None
      if path is None
      else Share(_specs(path, f"{name}_data_path", options), _WHOLE, 0)
      for name, path in zip(SPLIT_NAMES, options.split_paths)
    ]
  specs = _specs(options.data_path, "data_path", options)
  return [
    Share(specs, options.split, i) if weight else None
    for i, weight in enumerate(parse_split(options.split))
  ]


def _specs(path: Any, key: str, options: DatasetOptions) -> list[SourceSpec]:
  specs = parse_data_path(path, key=key)
  weight = read_entries(path, key=key)[0].weight
  if len(specs) == 1 and options.order == "megatron" and key == "data_path":
    # Megatron blends a single source that has a weight, and so asks it for
    # more rows, which gives others.
    return [dataclasses.replace(specs[0], weight=weight)]
  unweighted = weight is None
  if options.simple_blend != "no" and unweighted:
    # A folder's files all weigh 1; nobody gave them weights to refuse.
    return [dataclasses.replace(spec, weight=None) for spec in specs]
  return specs


def _manifests(shares: Sequence[Share]) -> dict[str, Manifest]:
  """Returns the manifests there are, by prefix."""
  paths = dict.fromkeys(spec.path for share in shares for spec in share.specs)
  read = {path: read_manifest(path) for path in paths}
  return {path: found for path, found in read.items() if found is not None}


def _build_split(
  name: str,
  share: Share | None,
  opener: SourceOpener,
  num_samples: int | None,
) -> grain.MapDataset | None:
  if share is None:
    return None
  options = opener.options
  weights = [spec.weight for spec in share.specs]
  mix = None
  sizes: list[int | None] = [num_samples]
  if len(share.specs) > 1 or weights[0] is not None:
    mix = _mix(
      None if None in weights else weights,
      num_samples,
      opener,
      repeats=name == "train" and options.data_sharding is not None,
    )
    sizes = mix.member_samples(len(weights))
  members = []
  for spec, size in zip(share.specs, sizes):
    opening = functools.partial(
      opener,
      spec,
      split=share.split,
      split_index=share.split_index,
      which=name,
      num_samples=size,
    )
    lazy = options.data_lazy_load
    members.append(LazySamples(opening, spec.name) if lazy else opening())
  _log.info(
    "%s: %d sources of %s",
    name,
    len(members),
    "pre-cut records" if options.is_dataset_from_mr else "documents",
  )
  return members[0] if mix is None else BlendSamples(members, mix=mix)


def _mix(
  weights: Sequence[float] | None,
  num_samples: int | None,
  opener: SourceOpener,
  *,
  repeats: bool,
) -> Mix:
  """Returns how the sources of a split take turns."""
  options = opener.options
  if options.order == "megatron":
    return MegatronMix(
      weights, num_samples, cache=opener.cache, repeats=repeats
    )
  return plain_mix(weights, str(options.simple_blend))
