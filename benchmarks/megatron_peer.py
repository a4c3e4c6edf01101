"""Megatron-core's GPTDataset over a pair, as its users build it."""

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


def dataset(prefix: str, *, seq_length: int, cache: Path) -> Any:
  """Builds its three indices over all documents.

  Positions, attention and loss are reset at each end of document; the dense
  attention mask is left out, since kernels make their own.
  """
  with common.quiet():
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    # As in a worker of torch's DataLoader; more threads only fight over rows
    # of this size, which would flatter whoever is compared with them.
    torch.set_num_threads(1)
    config = GPTDatasetConfig(
      random_seed=1,
      sequence_length=seq_length,
      blend=([prefix], None),
      split="1,0,0",
      path_to_cache=str(cache),
      tokenizer=_Tokenizer(),
      reset_position_ids=True,
      reset_attention_mask=True,
      eod_mask_loss=True,
      create_attention_mask=False,
    )
    indexed = IndexedDataset(prefix, multimodal=False, mmap=True)
    return GPTDataset(
      indexed,
      prefix,
      np.arange(len(indexed), dtype=np.int32),
      None,
      Split.train,
      config,
    )
