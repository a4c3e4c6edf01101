"""How many token ids the model needs."""

# Divides over tensor axes, and fills the tiles of matrix units.
_MULTIPLE = 128


def model_vocabulary(vocab_size: int | None) -> int:
  """Returns the vocabulary's size, rounded up to a multiple of 128.

  Args:
    vocab_size: what the loader knows of it: the tokenizer's, the manifests',
      or `dataset.data_config.vocab_size`.

  Raises:
    ValueError: if it is not known.
  """
  if vocab_size is None:
    raise ValueError(
      "The size of the vocabulary is not known: no tokenizer is configured,"
      " and no data path has a manifest. Set dataset.data_config.vocab_size,"
      " or model_assets.tokenizer.pretrained_model_name_or_path."
    )
  return -(-vocab_size // _MULTIPLE) * _MULTIPLE
