"""How many token ids the model needs, from a config."""

from ml_collections import ConfigDict

from hpgrain.data_paths import parse_data_path
from hpgrain.manifest import read_manifest
from hpgrain.tokenizer import load_tokenizer, tokenizer_info

_PATHS = ("data_path", "train_data_path", "valid_data_path", "test_data_path")

# Divides over tensor axes, and fills the tiles of matrix units.
_MULTIPLE = 128


def model_vocabulary(config: ConfigDict) -> int:
  """Returns the vocabulary's size, rounded up to a multiple of 128.

  It is the tokenizer's where one is configured; else the largest of the
  manifests beside the data; else `dataset.data_config.vocab_size`.

  Raises:
    ValueError: if none of them is there.
  """
  size = _vocabulary(config)
  return -(-size // _MULTIPLE) * _MULTIPLE


def _vocabulary(config: ConfigDict) -> int:
  tokenizer = config.model_assets.tokenizer
  if tokenizer.pretrained_model_name_or_path is not None:
    loaded = load_tokenizer(
      tokenizer.pretrained_model_name_or_path,
      use_fast=tokenizer.use_fast,
      trust_remote_code=tokenizer.trust_remote_code,
    )
    return tokenizer_info(loaded).vocab_size
  manifests = [
    read_manifest(source.path)
    for key in _PATHS
    if (path := config.dataset[key]) is not None
    for source in parse_data_path(path, key=f"dataset.{key}")
  ]
  sizes = [m.tokenizer.vocab_size for m in manifests if m is not None]
  if sizes and len(sizes) == len(manifests):
    return max(sizes)
  if config.dataset.data_config.vocab_size is not None:
    return config.dataset.data_config.vocab_size
  raise ValueError(
    "The size of the vocabulary is not known: no tokenizer is configured, and"
    f" {len(manifests) - len(sizes)} of {len(manifests)} data paths have no"
    " manifest. Set dataset.data_config.vocab_size, or"
    " model_assets.tokenizer.pretrained_model_name_or_path."
  )
