"""A source and one of its splits in, samples of it out.

  documents of any length -> GPTSamples
  records cut to the row  -> PrecutSamples

What a corpus holds is compared with what it is said to be, before a row of it
is made.
"""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from hpgrain.data_paths import SourceSpec
from hpgrain.dataset_options import DatasetOptions
from hpgrain.index_cache import IndexCache
from hpgrain.ltor import LtorOptions
from hpgrain.manifest import Manifest
from hpgrain.precut import PrecutSamples
from hpgrain.samples import GPTSamples
from hpgrain.sources.indexed import IndexedReader
from hpgrain.token_ids import TokenIds

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class SourceOpener:
  """Opens one split of one source; a source's splits share its reader.

  Attributes:
    options: of the whole dataset.
    manifests: by prefix, of the pairs that have one.
    ids: what is known of token ids.
    cache: of indices, shared by all sources.
    readers: those opened so far, by prefix.
  """

  options: DatasetOptions
  manifests: Mapping[str, Manifest]
  ids: TokenIds
  cache: IndexCache
  readers: dict[str, IndexedReader] = dataclasses.field(default_factory=dict)

  def __call__(
    self,
    spec: SourceSpec,
    *,
    split: str,
    split_index: int,
    which: str,
    num_samples: int | None = None,
  ) -> GPTSamples | PrecutSamples:
    """Returns the samples of one split.

    Args:
      spec: the source.
      split: weights of its splits.
      split_index: which of them to read.
      which: "train", "valid" or "test": train is shuffled and drops its tail.
      num_samples: rows asked for, in Megatron's order; None is one epoch.

    Raises:
      ValueError: if the corpus is not what it is read as.
    """
    options = self.options
    train = which == "train"
    arguments = {
      "seq_length": options.seq_length,
      "seed": options.seed,
      "add_extra_token": options.add_extra_token_to_sequence,
      "vocab_size": self.ids.vocab_size,
      "split": split,
      "split_index": split_index,
      "shuffle": train,
      "name": spec.name,
      "data_sharding": options.data_sharding if train else None,
      "ltor_options": self._ltor(),
    }
    samples = self._open(spec, arguments, which=which, num_samples=num_samples)
    if samples.buckets is not None and samples.buckets.left:
      _log.warning(
        "%s: source %r has %d rows an epoch, %d more than its"
        " data_sharding=%d buckets hold; these, its last, are left out.",
        which,
        spec.name,
        samples.buckets.rows_per_epoch + samples.buckets.left,
        samples.buckets.left,
        samples.buckets.num_buckets,
      )
    return samples

  def _open(
    self,
    spec: SourceSpec,
    arguments: dict[str, Any],
    *,
    which: str,
    num_samples: int | None,
  ) -> GPTSamples | PrecutSamples:
    options = self.options
    reader = self._reader(spec.path)
    if options.is_dataset_from_mr:
      return PrecutSamples(
        reader,
        eod_id=self.ids.eod_id,
        pad_id=self.ids.pad_id,
        skip_data_check=options.skip_data_check,
        **arguments,
      )
    if not options.skip_data_check:
      row = options.seq_length + int(options.add_extra_token_to_sequence)
      _refuse_cut_records(reader, self.manifests.get(spec.path), row)
    if options.order == "megatron":
      # Megatron shuffles every split, and keeps the tail of valid alone.
      keeps = which == "valid"
      arguments |= {"shuffle": True, "num_samples": num_samples}
    else:
      keeps = which != "train"
    drops = options.drop_last_partial_validation_sequence
    return GPTSamples(
      reader,
      order=options.order,
      drop_last=drops or not keeps,
      contiguous=options.contiguous,
      cache=self.cache,
      **arguments,
    )

  def _ltor(self) -> LtorOptions | None:
    """Returns how to make Megatron's masks, if they are asked for."""
    options = self.options
    if not options.create_ltor_fields_in_dataloader:
      return None
    return LtorOptions(
      eod_id=self.ids.eod_id,
      reset_position_ids=options.reset_position_ids,
      reset_attention_mask=options.reset_attention_mask,
      eod_mask_loss=options.eod_mask_loss,
    )

  def _reader(self, prefix: str) -> IndexedReader:
    if prefix not in self.readers:
      reader = IndexedReader(prefix, mmap=self.options.mmap)
      self.readers[prefix] = reader
    return self.readers[prefix]


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
