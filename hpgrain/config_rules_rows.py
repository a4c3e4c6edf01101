"""Rules of how examples fill rows, online or of tokenized corpora.

Each takes the completed configuration and raises a ValueError that names the
keys, their values and the way out.
"""

import ml_collections as mlc

from hpgrain.config_key import INT32_MAX
from hpgrain.config_uses import (
  batch_rows,
  is_online,
  is_packed,
  is_streamed,
  token_budget,
)


def check_rows(config: mlc.ConfigDict) -> None:
  """Raises ValueError at the first contradiction of rows of examples."""
  if not is_online(config) and not is_packed(config):
    return
  _check_budget(config)
  _check_streams(config)
  _check_buckets(config)
  _check_balance(config)


def _check_budget(config: mlc.ConfigDict) -> None:
  dataloader, budget = config.dataloader, token_budget(config)
  if budget >= INT32_MAX:
    raise ValueError(
      f"A row would have {budget} positions, which is"
      " training.micro_batch_size times the longest example; there can be"
      f" {INT32_MAX - 1}. Lower one of them, or set dataloader.token_budget."
    )
  multiple = dataloader.segment_multiple
  if dataloader.packer == "concat":
    for name in ("overlong", "segment_multiple"):
      value, default = dataloader[name], {"overlong": "error"}.get(name, 1)
      if value != default:
        raise ValueError(
          f"dataloader.{name} is {value!r}, and has no meaning with"
          " packer='concat', which cuts examples where a row is full. Leave it"
          f" at {default!r}, or take another packer."
        )
    return
  if budget % multiple:
    raise ValueError(
      f"dataloader.segment_multiple={multiple} must divide the row's {budget}"
      " positions (dataloader.token_budget)."
    )
  longest = config.data_transform.max_seq_len
  if is_online(config) and dataloader.overlong == "error" and longest > budget:
    raise ValueError(
      f"data_transform.max_seq_len={longest} is more than a row holds"
      f" (dataloader.token_budget={budget}), so an example could be longer than"
      " a row. Raise the budget, lower max_seq_len, or say in"
      " dataloader.overlong what becomes of such an example."
    )


def _check_streams(config: mlc.ConfigDict) -> None:
  dataloader = config.dataloader
  if not is_streamed(config):
    return
  for name, refused in (
    ("overlong", dataloader.overlong == "own_row"),
    ("length_buckets", len(dataloader.length_buckets) > 1),
  ):
    if refused:
      raise ValueError(
        f"dataloader.{name}={dataloader[name]!r} gives batches of several"
        " lengths, and which one is next has to be known beforehand: streams do"
        " not look ahead. Set dataset.data_config.lengths='table' (with"
        " dataset_type='mapping'), or take one length."
      )


def _check_buckets(config: mlc.ConfigDict) -> None:
  dataloader = config.dataloader
  buckets = dataloader.length_buckets
  own_row = dataloader.overlong == "own_row"
  if own_row and not buckets:
    raise ValueError(
      "dataloader.overlong='own_row' puts a longer example alone into a row of"
      " the smallest dataloader.length_buckets that holds it, and there are"
      " none. Set it, such as (4096, 8192), or take another policy."
    )
  if not buckets:
    return
  if list(buckets) != sorted(set(buckets)):
    raise ValueError(
      f"dataloader.length_buckets must be ascending, each once; got {buckets}."
    )
  packer = dataloader.packer if is_packed(config) else "fixed"
  if packer not in ("fixed", "pad") and not own_row:
    raise ValueError(
      f"dataloader.length_buckets is {buckets!r}, but packer={packer!r} fills"
      " every row to the budget. Leave it empty, or take packer='pad',"
      " type='fixed' or overlong='own_row'."
    )
  longest = _longest_row(config, packer)
  if buckets[-1] < longest:
    raise ValueError(
      f"dataloader.length_buckets ends with {buckets[-1]}, but a row may have"
      f" {longest} positions. Add a bucket of {longest}, or lower"
      " data_transform.max_seq_len or dataloader.token_budget."
    )


def _longest_row(config: mlc.ConfigDict, packer: str) -> int:
  """Returns the most positions a row can have, as far as it is known."""
  budget = token_budget(config)
  longest = config.data_transform.max_seq_len
  if not is_online(config):
    return budget
  if config.dataloader.overlong == "own_row":
    return max(budget, longest) if packer != "pad" else longest
  return min(budget, longest) if packer == "pad" else budget


def _check_balance(config: mlc.ConfigDict) -> None:
  dataloader, rows = config.dataloader, batch_rows(config)
  if dataloader.balance_shares is None:
    return
  for name, number, of, total in (
    (
      "balance_shares",
      dataloader.balance_shares,
      "dataloader.balance_rows",
      dataloader.balance_rows,
    ),
    ("balance_rows", dataloader.balance_rows, "the rows of a batch", rows),
  ):
    if total % number:
      raise ValueError(
        f"dataloader.{name} must divide {of}, got {number} and {total}. Rows"
        " are exchanged within dataloader.balance_rows of them; a batch has"
        " training.global_batch_size / training.micro_batch_size."
      )
