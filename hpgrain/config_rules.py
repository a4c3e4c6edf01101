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
  _check_end_of_data(config.dataloader)
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
  if training.train_samples is not None:
    raise ValueError(
      f"training.train_samples is {training.train_samples}, but rows do not"
      " depend on the run's length with dataset.data_config.order='stable'."
      " Leave it unset and say training.train_iters."
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


def _check_end_of_data(dataloader: mlc.ConfigDict) -> None:
  drop_last, end = dataloader.drop_last, dataloader.end_of_data
  if None not in (drop_last, end) and END_OF_DATA[drop_last] != end:
    raise ValueError(
      f"dataloader.drop_last={drop_last} means end_of_data="
      f"{END_OF_DATA[drop_last]!r}, but dataloader.end_of_data is {end!r}. Set"
      " one of them."
    )
  if dataloader.sampler_type == "single" and dataloader.epochs not in (None, 1):
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
