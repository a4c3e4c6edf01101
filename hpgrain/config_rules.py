"""Checks what several configuration keys must agree on.

  check_rules   what holds for every run
    config_rules_indexed   tokenized corpora
    config_rules_online    records that are tokenized while training
    config_rules_rows      how examples fill rows, of either
    config_rules_mesh      axes and sizes, and whether a given mesh fits

Each rule takes the completed configuration and raises a ValueError that names
the keys, their values and the way out. Whether one key's value is legal by
itself is the schema's matter.
"""

from collections.abc import Mapping
from typing import Any

import ml_collections as mlc

from hpgrain import config_rules_mesh, config_uses
from hpgrain.config_rules_indexed import check_indexed
from hpgrain.config_rules_online import check_online
from hpgrain.config_rules_rows import check_rows
from hpgrain.config_schema import KEYS
from hpgrain.config_uses import USES, is_online, is_streamed, sampler_type
from hpgrain.context_layout import DOCUMENT_ZIGZAG

# What `dataloader.drop_last` means in this package's words.
END_OF_DATA: Mapping[bool, str] = {True: "drop", False: "pad"}

# Keys that say alike things of the two kinds of data.
_INSTEAD: Mapping[str, str] = {
  "dataset.data_config.seq_length": "data_transform.max_seq_len",
  "data_transform.max_seq_len": "dataset.data_config.seq_length",
}

# Uses that one key alone decides: which it is, and what to set.
_DECIDED_BY: Mapping[str, tuple[str, str]] = {
  "compressed": (
    "get_batch.attention_mode",
    "get_batch.attention_mode='compressed'",
  ),
  "window": ("get_batch.sliding_window", "get_batch.sliding_window"),
  "balanced": ("dataloader.balance_shares", "dataloader.balance_shares"),
}


def completed(config: mlc.ConfigDict) -> dict[str, Any]:
  """Returns, by name, what goes for keys that are unset.

  Completing twice is completing once.

  Args:
    config: every key, each with a legal value.
  """
  online = is_online(config)
  data, dataloader = config.dataset.data_config, config.dataloader
  lengths = data.lengths
  if online and lengths is None:
    lengths = "table" if data.dataset_type == "mapping" else "stream"
  end = end_of_data(dataloader)
  if end is None and online and lengths == "stream":
    end = "pad"
  balanced = dataloader.balance_rows
  if dataloader.balance_shares is not None and balanced is None:
    balanced = config_uses.batch_rows(config)
  data_type, split = config.data_transform.data_type, data.split
  source_type = config.get_batch.source_type
  if data_type is None:
    data_type = "plaintext" if online else "identity"
  if split is None:
    split = "1, 0, 0" if online else "969, 30, 1"
  return {
    **config_rules_mesh.sizes(config.mesh),
    "get_batch.source_type": source_type or config.dataset.kind,
    "data_transform.data_type": data_type,
    "dataset.data_config.split": split,
    "dataset.data_config.lengths": lengths,
    "dataloader.end_of_data": end,
    "dataloader.sampler_type": sampler_type(config),
    "dataloader.balance_rows": balanced,
  }


def check_rules(config: mlc.ConfigDict, *, mesh_is_given: bool = False) -> None:
  """Raises ValueError at the first contradiction in `config`.

  `config.mesh` describes a mesh that is to be made. One that is given is what
  it is: `config_rules_mesh.check_sizes` compares them.
  """
  if not mesh_is_given:
    config_rules_mesh.check_mesh(config.mesh)
  _check_kind(config)
  _check_uses(config)
  _check_training(config)
  if is_online(config):
    check_online(config)
  else:
    check_indexed(config)
  check_rows(config)
  _check_ids(config.dataset.data_config)
  _check_end_of_data(config)
  _check_attention(config.get_batch)
  _check_layout(config)
  if config.model.width % config.model.heads:
    raise ValueError(
      f"model.heads must divide model.width, got {config.model.heads} and"
      f" {config.model.width}."
    )


def _check_kind(config: mlc.ConfigDict) -> None:
  kind, source_type = config.dataset.kind, config.get_batch.source_type
  if source_type != kind:
    raise ValueError(
      f"get_batch.source_type is {source_type!r}, but dataset.kind is {kind!r}."
      " Set both to the same, or leave source_type unset."
    )


def _check_uses(config: mlc.ConfigDict) -> None:
  """Refuses a key that was set, and would do nothing."""
  for key in KEYS:
    if not key.only or USES[key.only].holds(config):
      continue
    value = _value(config, key.name)
    if value == key.default:
      continue
    instead = _INSTEAD.get(key.name)
    hint = f"; say {instead} instead" if instead else ""
    default = "unset" if key.default is None else f"at {key.default!r}"
    state, remedy = _state(config), f"Leave it {default}{hint}"
    if key.only in _DECIDED_BY:
      decider, setting = _DECIDED_BY[key.only]
      found = _value(config, decider)
      state = f"{decider} is {'unset' if found is None else repr(found)}"
      remedy = f"Set {setting}, or leave {key.name} {default}"
    raise ValueError(
      f"{key.name} is {value!r}, and has a meaning only for"
      f" {USES[key.only].words}. Here {state}. {remedy}."
    )


def _value(config: mlc.ConfigDict, name: str) -> Any:
  """Returns what a key has, by its full name."""
  value: Any = config
  for part in name.split("."):
    value = value[part]
  return value


def _state(config: mlc.ConfigDict) -> str:
  """What decides which keys have a meaning, in words."""
  dataloader = config.dataloader
  words = f"dataset.kind is {config.dataset.kind!r}"
  if is_online(config):
    words += f", lengths {config.dataset.data_config.lengths!r}"
    words += f", data_type {config.data_transform.data_type!r}"
  words += f", dataloader.type {dataloader.type!r}"
  if dataloader.type == "dynamic":
    words += f", packer {dataloader.packer!r}"
  return words


def _check_training(config: mlc.ConfigDict) -> None:
  training = config.training
  if training.global_batch_size % training.micro_batch_size:
    raise ValueError(
      "training.micro_batch_size must divide training.global_batch_size, got"
      f" {training.micro_batch_size} and {training.global_batch_size}."
    )
  order = config.dataset.data_config.order
  consumed = config.dataloader.consumed_samples
  if training.train_samples is None:
    if order == "megatron" and consumed:
      raise ValueError(
        f"dataloader.consumed_samples is {consumed}, so this run goes on with"
        " rows that another began, and with order='megatron' those depend on"
        " how many that run asked for. Say it in training.train_samples"
        " (Megatron-LM's --train-samples, or --train-iters x"
        " --global-batch-size). To resume a run of your own, set"
        " consumed_samples to 0: its checkpoint knows the row."
      )
    return
  if order != "megatron":
    raise ValueError(
      f"training.train_samples is {training.train_samples}, but rows do not"
      f" depend on the run's length with dataset.data_config.order={order!r}."
      " Leave it unset and say training.train_iters."
    )
  if consumed >= training.train_samples:
    raise ValueError(
      f"dataloader.consumed_samples={consumed} leaves none of the"
      f" training.train_samples={training.train_samples} rows that order"
      " 'megatron' is made for. Is one of the two wrong?"
    )


def _check_ids(data: mlc.ConfigDict) -> None:
  for name in ("eod_id", "pad_id"):
    if None not in (data[name], data.vocab_size):
      if data[name] >= data.vocab_size:
        raise ValueError(
          f"dataset.data_config.{name} is {data[name]}, outside the vocabulary"
          f" of vocab_size={data.vocab_size} ids."
        )


def _check_end_of_data(config: mlc.ConfigDict) -> None:
  dataloader = config.dataloader
  drop_last, end = dataloader.drop_last, dataloader.end_of_data
  if None not in (drop_last, end) and END_OF_DATA[drop_last] != end:
    raise ValueError(
      f"dataloader.drop_last={drop_last} means end_of_data="
      f"{END_OF_DATA[drop_last]!r}, but dataloader.end_of_data is {end!r}. Set"
      " one of them."
    )
  if is_streamed(config) and end == "drop":
    name = "end_of_data='drop'" if drop_last is None else "drop_last=True"
    raise ValueError(
      f"dataloader.{name} needs to know the last row beforehand, and streams"
      " do not: their last batches are padded until all have ended. Set"
      " end_of_data='pad', or dataset.data_config.lengths='table'."
    )
  if sampler_type(config) == "single" and dataloader.epochs not in (None, 1):
    raise ValueError(
      "dataloader.sampler_type='single' is one epoch, but dataloader.epochs is"
      f" {dataloader.epochs}. Set sampler_type='cyclic' or leave epochs unset."
    )


def _check_attention(get_batch: mlc.ConfigDict) -> None:
  if get_batch.attention_mode == "compressed" and (
    get_batch.attention_adapter is None
  ):
    raise ValueError(
      "get_batch.attention_mode='compressed' needs get_batch.attention_adapter,"
      " which says for which kernel packed_seq_params are made."
    )


def _check_layout(config: mlc.ConfigDict) -> None:
  get_batch, dataloader = config.get_batch, config.dataloader
  layout = get_batch.context_parallel_layout
  if layout != DOCUMENT_ZIGZAG:
    return
  said = f"get_batch.context_parallel_layout={layout!r} divides every document"
  if not config_uses.is_packed(config) or dataloader.packer == "concat":
    raise ValueError(
      f"{said}, whose room must then be a multiple of 2 * cp: only rows that"
      " are packed of whole examples leave such room (dataloader.type="
      "'dynamic', a packer other than 'concat'). Here"
      f" {_state(config)}. Take 'zigzag', which divides the row."
    )
  if not get_batch.reset_attention_mask:
    raise ValueError(
      f"{said}, and get_batch.reset_attention_mask=False makes a row one. Take"
      " 'zigzag', or set reset_attention_mask=True."
    )
  if config.mesh.cp > 1 and dataloader.segment_multiple % (2 * config.mesh.cp):
    raise ValueError(
      f"{said} into 2 * cp chunks, so dataloader.segment_multiple must be a"
      f" multiple of {2 * config.mesh.cp} with mesh.cp={config.mesh.cp}, got"
      f" {dataloader.segment_multiple}. It shapes rows: choose it for the"
      " largest cp that the run may have."
    )


def end_of_data(dataloader: mlc.ConfigDict) -> str | None:
  """Returns `end_of_data`, or what `drop_last` says where only that is set."""
  if dataloader.end_of_data is None:
    return END_OF_DATA.get(dataloader.drop_last)
  return dataloader.end_of_data
