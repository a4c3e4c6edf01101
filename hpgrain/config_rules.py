"""Checks what several configuration keys must agree on.

Each rule takes the completed configuration and raises a ValueError that names
the keys, their values and the way out. Whether one key's value is legal by
itself is the schema's matter.
"""

from collections.abc import Mapping

import ml_collections as mlc

from hpgrain.data_paths import read_entries

SPLIT_PATHS = ("train_data_path", "valid_data_path", "test_data_path")

# What `dataloader.drop_last` means in this package's words.
END_OF_DATA: Mapping[bool, str] = {True: "drop", False: "pad"}


def check_rules(config: mlc.ConfigDict) -> None:
  """Raises ValueError at the first contradiction in `config`."""
  _check_mesh(config.mesh)
  _check_training(config)
  _check_paths(config.dataset)
  _check_data(config)
  _check_order(config)
  _check_ltor(config)
  _check_end_of_data(config)
  _check_labels(config)
  if config.model.width % config.model.heads:
    raise ValueError(
      f"model.heads must divide model.width, got {config.model.heads} and"
      f" {config.model.width}."
    )


def _check_mesh(mesh: mlc.ConfigDict) -> None:
  axes = mesh.axes
  if not axes or len(set(axes)) < len(axes):
    raise ValueError(f"mesh.axes must be unlike names, got {axes!r}.")
  for name in axes:
    size = mesh.get(name)
    if not isinstance(size, int) or isinstance(size, bool):
      raise ValueError(
        f"mesh.axes names {name!r}, so mesh.{name} must say its number of"
        f" devices; got {size!r}. Set it to 1 or more, or -1 for those left."
      )
    if size < 1 and size != -1:
      raise ValueError(f"mesh.{name} must be -1 or at least 1, got {size}.")
  rest = [name for name in axes if mesh[name] == -1]
  if len(rest) > 1:
    raise ValueError(
      f"Only one axis can take the devices left (-1); mesh has {rest!r}."
    )
  for name in ("cp", "tp"):
    if name not in axes and mesh[name] != 1:
      raise ValueError(
        f"mesh.{name} is {mesh[name]}, but mesh.axes is {axes!r}. Add {name!r}"
        " to it or leave the size at 1."
      )
  wrong = [n for n in mesh.data_axes if n not in axes or n in ("cp", "tp")]
  if wrong or not mesh.data_axes:
    raise ValueError(
      f"mesh.data_axes must be some of mesh.axes {axes!r} other than cp and"
      f" tp, got {mesh.data_axes!r}."
    )
  if mesh.sequence_parallel and "tp" not in axes:
    raise ValueError(
      f"mesh.sequence_parallel shares positions over tp, but mesh.axes is"
      f" {axes!r}. Add 'tp' to it or turn sequence_parallel off."
    )


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


def _check_order(config: mlc.ConfigDict) -> None:
  data, dataloader = config.dataset.data_config, config.dataloader
  if data.order == "megatron" and dataloader.data_rearrange_map is not None:
    if config.training.train_samples is None:
      raise ValueError(
        "dataloader.data_rearrange_map names rows of an index, and with"
        " order='megatron' how many there are depends on how many are asked"
        " for. Say it in training.train_samples."
      )
  if data.order != "stable":
    for name in ("mock_data", "is_dataset_from_mr"):
      if data[name]:
        raise ValueError(
          f"dataset.data_config.order={data.order!r} is of documents, and"
          f" {name}=True has none. Leave order at 'stable'."
        )
  if dataloader.data_sharding is not None:
    if sampler_type(config) == "single" and data.order == "megatron":
      raise ValueError(
        f"dataloader.data_sharding={dataloader.data_sharding} permutes rows,"
        " and with order='megatron' sampler_type='single' (the default there)"
        " reads them in index order. Set dataloader.sampler_type='cyclic', or"
        " leave data_sharding unset."
      )
    if data.mock_data:
      raise ValueError(
        f"dataloader.data_sharding={dataloader.data_sharding} orders rows that"
        " are read, and mock_data=True makes them up. Unset one of them."
      )


def _check_ltor(config: mlc.ConfigDict) -> None:
  data, get_batch = config.dataset.data_config, config.get_batch
  if not data.create_ltor_fields_in_dataloader:
    return
  if data.mock_data:
    raise ValueError(
      "dataset.data_config.create_ltor_fields_in_dataloader=True looks for"
      " end-of-document ids, and mock_data=True has no documents. Unset one of"
      " them."
    )
  if get_batch.attention_mode == "dense" or get_batch.sliding_window:
    raise ValueError(
      "dataset.data_config.create_ltor_fields_in_dataloader=True makes an"
      " attention_mask that is True where attention is masked;"
      " get_batch.attention_mode='dense' and get_batch.sliding_window make"
      " masks that are True where it is allowed. Take one of the two."
    )
  if not get_batch.labels_are_shifted:
    raise ValueError(
      "dataset.data_config.create_ltor_fields_in_dataloader=True is of shifted"
      " labels, as Megatron's loader has them. Set"
      " get_batch.labels_are_shifted=True."
    )


def _check_paths(dataset: mlc.ConfigDict) -> None:
  given = {
    name: read_entries(dataset[name], key=f"dataset.{name}")
    for name in ("data_path", *SPLIT_PATHS)
    if dataset[name] is not None
  }
  if dataset.data_config.mock_data:
    if given:
      raise ValueError(
        f"dataset.{next(iter(given))} is set, but"
        " dataset.data_config.mock_data=True reads no file. Unset one of them."
      )
    return
  if not given:
    raise ValueError(
      "dataset.data_path is missing. Give it the prefix of an .idx/.bin pair,"
      " or set train_data_path, valid_data_path and test_data_path, or"
      " dataset.data_config.mock_data=True for made-up rows."
    )
  if "data_path" in given and len(given) > 1:
    raise ValueError(
      f"dataset.data_path and dataset.{list(given)[1]} exclude each other: the"
      " first is cut by dataset.data_config.split, the second is one split"
      " whole. Unset one of them."
    )
  blend = dataset.data_config.simple_blend
  if blend == "no":
    return
  if not dataset.data_config.is_dataset_from_mr:
    raise ValueError(
      f"dataset.data_config.simple_blend={blend!r} is for pre-cut records only."
      " Set is_dataset_from_mr=True, or simple_blend='no'."
    )
  for name, entries in given.items():
    if entries[0].weight is not None:
      raise ValueError(
        f"dataset.{name} has weights, which"
        f" dataset.data_config.simple_blend={blend!r} would not use. Leave the"
        " weights out, or set simple_blend='no'."
      )


def _check_data(config: mlc.ConfigDict) -> None:
  data = config.dataset.data_config
  tokenizer = config.model_assets.tokenizer.pretrained_model_name_or_path
  if data.mock_data and data.is_dataset_from_mr:
    raise ValueError(
      "dataset.data_config.mock_data and is_dataset_from_mr exclude each other:"
      " made-up rows come from no records. Unset one of them."
    )
  if data.mock_data and data.vocab_size is None and tokenizer is None:
    raise ValueError(
      "dataset.data_config.mock_data needs a vocabulary: set"
      " dataset.data_config.vocab_size, or"
      " model_assets.tokenizer.pretrained_model_name_or_path."
    )
  if config.model_assets.chat_template is not None:
    raise ValueError(
      "model_assets.chat_template is set, but indexed data are tokens already"
      " and no template is applied to them. Leave it unset."
    )
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
  if sampler_type(config) == "single" and dataloader.epochs not in (None, 1):
    raise ValueError(
      "dataloader.sampler_type='single' is one epoch, but dataloader.epochs is"
      f" {dataloader.epochs}. Set sampler_type='cyclic' or leave epochs unset."
    )


def _check_labels(config: mlc.ConfigDict) -> None:
  if not config.get_batch.labels_are_shifted and config.mesh.cp > 1:
    raise ValueError(
      "get_batch.labels_are_shifted=False cannot go with mesh.cp="
      f"{config.mesh.cp}: a slice's last label is its neighbour's first token."
      " Shift labels in the loader, or set mesh.cp=1."
    )


def end_of_data(dataloader: mlc.ConfigDict) -> str | None:
  """Returns `end_of_data`, or what `drop_last` says where only that is set."""
  if dataloader.end_of_data is None:
    return END_OF_DATA.get(dataloader.drop_last)
  return dataloader.end_of_data


def sampler_type(config: mlc.ConfigDict) -> str:
  """Returns `dataloader.sampler_type`, or the order's own where it is unset."""
  if config.dataloader.sampler_type is not None:
    return config.dataloader.sampler_type
  megatron = config.dataset.data_config.order == "megatron"
  return "single" if megatron else "cyclic"
