"""What a configuration is used for, and what its numbers come to.

  kind      type      rows are                      of a batch
  indexed   fixed     seq_length tokens, cut        global_batch_size
  indexed   dynamic   documents within the budget   global / micro_batch_size
  online    either    examples within the budget    global / micro_batch_size

A key that has a meaning in one use alone says so by its `only`.
"""

import dataclasses
from collections.abc import Callable, Mapping

import ml_collections as mlc

SPLIT_PATHS = ("train_data_path", "valid_data_path", "test_data_path")


@dataclasses.dataclass(frozen=True)
class Use:
  """A kind of run.

  Attributes:
    words: what it is, as "It has a meaning for ... only" goes on.
    holds: whether a completed configuration is one.
  """

  words: str
  holds: Callable[[mlc.ConfigDict], bool]


def is_online(config: mlc.ConfigDict) -> bool:
  """Whether records are tokenized while training."""
  return config.dataset.kind == "online"


def is_packed(config: mlc.ConfigDict) -> bool:
  """Whether rows are filled up to a budget."""
  return config.dataloader.type == "dynamic"


def is_streamed(config: mlc.ConfigDict) -> bool:
  """Whether rows come out of streams: no length is known beforehand."""
  return is_online(config) and config.dataset.data_config.lengths == "stream"


def is_planned(config: mlc.ConfigDict) -> bool:
  """Whether rows are made of examples whose lengths are known beforehand."""
  return not is_streamed(config) and (is_online(config) or is_packed(config))


def token_budget(config: mlc.ConfigDict) -> int:
  """Returns the positions of a row, before `length_buckets`.

  Args:
    config: what `config.check` returned.
  """
  data = config.dataset.data_config
  if not is_online(config) and not is_packed(config):
    return data.seq_length
  if config.dataloader.token_budget is not None:
    return config.dataloader.token_budget
  longest = (
    config.data_transform.max_seq_len if is_online(config) else data.seq_length
  )
  return config.training.micro_batch_size * longest


def batch_rows(config: mlc.ConfigDict) -> int:
  """Returns the rows of one optimizer step.

  Args:
    config: what `config.check` returned.
  """
  training = config.training
  if not is_online(config) and not is_packed(config):
    return training.global_batch_size
  return training.global_batch_size // training.micro_batch_size


def sampler_type(config: mlc.ConfigDict) -> str:
  """Returns `dataloader.sampler_type`, or the order's own where it is unset."""
  if config.dataloader.sampler_type is not None:
    return config.dataloader.sampler_type
  megatron = config.dataset.data_config.order == "megatron"
  return "single" if megatron else "cyclic"


def _data_type(*names: str) -> Callable[[mlc.ConfigDict], bool]:
  return lambda config: (
    is_online(config) and config.data_transform.data_type in names
  )


def _has_hub_name(config: mlc.ConfigDict) -> bool:
  return config.dataset.data_config.hf_dataset_name is not None


_ONLINE = "online data (dataset.kind='online')"

USES: Mapping[str, Use] = {
  "indexed": Use(
    "tokenized corpora (dataset.kind='indexed')", lambda c: not is_online(c)
  ),
  "cut": Use(
    "rows cut from tokenized corpora (dataset.kind='indexed',"
    " dataloader.type='fixed')",
    lambda c: not is_online(c) and not is_packed(c),
  ),
  "online": Use(_ONLINE, is_online),
  "hub": Use(
    "a Hugging Face dataset (dataset.kind='online',"
    " dataset.data_config.hf_dataset_name)",
    lambda c: is_online(c) and _has_hub_name(c),
  ),
  "files": Use(
    "files of online data (dataset.kind='online', dataset.data_path)",
    lambda c: is_online(c) and not _has_hub_name(c),
  ),
  "table": Use(
    "online data of known lengths (dataset.kind='online',"
    " dataset.data_config.lengths='table')",
    lambda c: is_online(c) and not is_streamed(c),
  ),
  "streams": Use(
    "online data in streams (dataset.kind='online',"
    " dataset.data_config.dataset_type='iterable' or lengths='stream')",
    is_streamed,
  ),
  "text": Use(
    f"{_ONLINE} with data_transform.data_type='plaintext' or 'conversation'",
    _data_type("plaintext", "conversation"),
  ),
  "plaintext": Use(
    f"{_ONLINE} with data_transform.data_type='plaintext'",
    _data_type("plaintext"),
  ),
  "conversation": Use(
    f"{_ONLINE} with data_transform.data_type='conversation'",
    _data_type("conversation"),
  ),
  "pretokenized": Use(
    f"{_ONLINE} with data_transform.data_type='pretokenized'",
    _data_type("pretokenized"),
  ),
  "packed": Use("packed rows (dataloader.type='dynamic')", is_packed),
  "examples": Use(
    f"{_ONLINE} and packed rows (dataloader.type='dynamic')",
    lambda c: is_online(c) or is_packed(c),
  ),
  "plans": Use(
    "examples of known lengths (dataset.data_config.lengths='table', or packed"
    " tokenized corpora)",
    is_planned,
  ),
  "first_fit": Use(
    "dataloader.type='dynamic' with packer='first_fit'",
    lambda c: is_packed(c) and c.dataloader.packer == "first_fit",
  ),
  "lookahead": Use(
    "online data in streams (dataset.data_config.lengths='stream') with"
    " dataloader.type='dynamic' and packer='best_fit'",
    lambda c: (
      is_streamed(c) and is_packed(c) and c.dataloader.packer == "best_fit"
    ),
  ),
  "compressed": Use(
    "get_batch.attention_mode='compressed'",
    lambda c: c.get_batch.attention_mode == "compressed",
  ),
  "window": Use(
    "a window (get_batch.sliding_window)",
    lambda c: c.get_batch.sliding_window is not None,
  ),
  "balanced": Use(
    "dataloader.balance_shares", lambda c: bool(c.dataloader.balance_shares)
  ),
}
