r"""The keys of `data_transform` in, the transform they describe out.

  plaintext      a text field, tokenized, ended by EOS, cut
  conversation   messages, by a chat template; the assistant's turns learnt
  pretokenized   ids as they are, cut

`identity` is of indexed data, whose rows are tokens of one length already:
they pass through no transform.
"""

import inspect
from collections.abc import Callable
from typing import Any

from hpgrain.nearest import did_you_mean
from hpgrain.transforms.conversation import ConversationTransform
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer
from hpgrain.transforms.plaintext import PlaintextTransform
from hpgrain.transforms.pretokenized import PretokenizedTransform
from hpgrain.transforms.transform import Transform

DATA_TYPES = ("plaintext", "conversation", "pretokenized", "identity")


def make_transform(
  data_type: str,
  *,
  max_seq_len: int,
  tokenizer: LazyTokenizer | str | Any | None = None,
  labels_are_shifted: bool = True,
  **options: Any,
) -> Transform:
  """Makes the transform of online data; nothing is opened or tokenized.

  Args:
    data_type: one of `DATA_TYPES`.
    max_seq_len: positions an example has at most.
    tokenizer: a folder, a hub name, a loaded one or a `LazyTokenizer`;
      "pretokenized" takes no notice of it.
    labels_are_shifted: `get_batch.labels_are_shifted`.
    **options: the transform's own arguments, as `text_keys`; those that are
      None take its default.

  Raises:
    ValueError: the type is unknown, an option is not of this type, the
      tokenizer is missing or not wanted, or as the transform says.
  """
  made: dict[str, Callable[..., Transform]] = {
    "plaintext": PlaintextTransform,
    "conversation": ConversationTransform,
    "pretokenized": PretokenizedTransform,
  }
  if data_type == "identity":
    raise ValueError(
      "data_transform.data_type='identity' is of indexed data"
      " (dataset.kind='indexed'), whose rows pass unchanged. For token ids"
      " among online data take 'pretokenized'."
    )
  if data_type not in made:
    raise ValueError(
      "data_transform.data_type must be one of"
      f" {', '.join(DATA_TYPES)}, got {data_type!r}."
    )
  make = made[data_type]
  legal = set(inspect.signature(make).parameters)
  legal -= {"tokenizer", "max_seq_len", "labels_are_shifted"}
  given = {key: value for key, value in options.items() if value is not None}
  for key in given:
    if key not in legal:
      raise ValueError(
        f"data_transform.{key} is no key of data_type={data_type!r}; it has"
        f" {', '.join(sorted(legal))}.{did_you_mean(key, legal)}"
      )
  arguments = {
    "max_seq_len": max_seq_len,
    "labels_are_shifted": labels_are_shifted,
    **given,
  }
  if data_type == "pretokenized":
    return make(**arguments)
  if tokenizer is None:
    raise ValueError(
      f"data_transform.data_type={data_type!r} needs a tokenizer. Set"
      " model_assets.tokenizer.pretrained_model_name_or_path."
    )
  if not isinstance(tokenizer, LazyTokenizer):
    tokenizer = LazyTokenizer(tokenizer)
  return make(tokenizer, **arguments)
