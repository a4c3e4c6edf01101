"""Rules of tokenized corpora: their paths, their order, what rows are cut.

Each takes the completed configuration and raises a ValueError that names the
keys, their values and the way out.
"""

import ml_collections as mlc

from hpgrain.config_uses import SPLIT_PATHS, sampler_type
from hpgrain.data_paths import read_entries


def check_indexed(config: mlc.ConfigDict) -> None:
  """Raises ValueError at the first contradiction of dataset.kind='indexed'."""
  _check_transform(config)
  _check_paths(config.dataset)
  _check_data(config)
  _check_order(config)
  _check_ltor(config)


def _check_transform(config: mlc.ConfigDict) -> None:
  data_type = config.data_transform.data_type
  if data_type != "identity":
    raise ValueError(
      f"data_transform.data_type={data_type!r} is of online data, and"
      " dataset.kind is 'indexed', whose token ids are taken as they are."
      " Leave it unset, or set dataset.kind='online'."
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
  if get_batch.attention_mode == "compressed":
    raise ValueError(
      "dataset.data_config.create_ltor_fields_in_dataloader=True makes"
      " Megatron's attention_mask, and get_batch.attention_mode='compressed'"
      " what a kernel takes instead of a mask. Take one of the two."
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
