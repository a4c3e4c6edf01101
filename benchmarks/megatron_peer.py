"""Megatron-core over a pair, as its users build it, and the parts it does.

dataset                all three indices of a GPTDataset
build_document_index   the first of them alone
build_sample_index     the second
"""

from pathlib import Path
from typing import Any

import common
import numpy as np

NAME = "Megatron-core"


def is_installed() -> bool:
  """Whether Megatron-core and torch are there."""
  return all(map(common.is_installed, ("megatron", "torch")))


class _Tokenizer:
  vocab_size = common.VOCAB_SIZE
  eod = common.EOD
  pad = -1
  unique_identifiers = {"class": "benchmark"}  # noqa: RUF012


def load() -> None:
  """Imports it, which takes seconds, so that no one times that."""
  with common.quiet():
    import torch
    from megatron.core.datasets import gpt_dataset, helpers, indexed_dataset

    del gpt_dataset, helpers, indexed_dataset
    # As in a worker of torch's DataLoader; more threads only fight over rows
    # of this size, which would flatter whoever is compared with them.
    torch.set_num_threads(1)


def dataset(prefix: str, *, seq_length: int, cache: Path | None) -> Any:
  """Builds its three indices over all documents, or finds them.

  Positions, attention and loss are reset at each end of document; the dense
  attention mask is left out, since kernels make their own.

  Args:
    prefix: of the pair.
    seq_length: positions a row.
    cache: the folder of the indices; None keeps them in memory.
  """
  load()
  with common.quiet():
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    config = GPTDatasetConfig(
      random_seed=1,
      sequence_length=seq_length,
      blend=([prefix], None),
      split="1,0,0",
      path_to_cache=None if cache is None else str(cache),
      tokenizer=_Tokenizer(),
      reset_position_ids=True,
      reset_attention_mask=True,
      eod_mask_loss=True,
      create_attention_mask=False,
    )
    # Without a folder it makes one beside the corpus, unless the data is said
    # to be made up; it asks in no other place.
    config.mock = cache is None
    indexed = IndexedDataset(prefix, multimodal=False, mmap=True)
    return GPTDataset(
      indexed,
      prefix,
      np.arange(len(indexed), dtype=np.int32),
      None,
      Split.train,
      config,
    )


def build_document_index(num_documents: int, seed: int) -> np.ndarray:
  """Returns int32[num_documents], all documents once, shuffled."""
  from megatron.core.datasets.gpt_dataset import _build_document_index

  documents = np.arange(num_documents, dtype=np.int32)
  random_state = np.random.RandomState(seed)
  return _build_document_index(documents, 1, random_state, False)


def build_sample_index(
  lengths: np.ndarray,
  document_index: np.ndarray,
  *,
  seq_length: int,
  num_tokens: int,
) -> np.ndarray:
  """Returns int32[samples + 1, 2] of one epoch over all documents."""
  from megatron.core.datasets import helpers

  return helpers.build_sample_idx(
    lengths, document_index, seq_length, 1, num_tokens, True, True
  )
