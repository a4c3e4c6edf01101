"""The vocabulary size and special ids of a run, from wherever they are known.

The tokenizer of the configuration, the manifests beside the corpora and the
plain numbers of data_config must agree; what none of them knows stays None.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from hpgrain.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class TokenIds:
  """What rows and batches need to know of the tokenizer.

  Attributes:
    vocab_size: ids lie in [0, vocab_size).
    eod_id: ends a document.
    pad_id: must not occur in pre-cut records; None where it may.
  """

  vocab_size: int | None
  eod_id: int | None
  pad_id: int | None


def resolve(
  *,
  tokenizer: Any,
  manifests: Mapping[str, Manifest],
  vocab_size: int | None,
  eod_id: int | None,
  pad_id: int | None,
) -> TokenIds:
  """Joins what the tokenizer, the manifests and the configuration say.

  Args:
    tokenizer: `tokenizer.TokenizerInfo` of the configured one, or None.
    manifests: by source name, of the corpora that have one.
    vocab_size: of data_config, or None.
    eod_id: of data_config, or None.
    pad_id: of data_config, or None.

  Raises:
    ValueError: if two of them disagree, naming both, or an id lies outside
      the vocabulary.
  """
  known: list[tuple[str, Any]] = []
  if tokenizer is not None:
    known.append(("model_assets.tokenizer", tokenizer))
  known += [
    (f"the manifest of source {name!r}", manifest.tokenizer)
    for name, manifest in manifests.items()
  ]
  for where, info in known[1:]:
    first_where, first = known[0]
    if info.digest != first.digest:
      raise ValueError(
        f"{first_where} and {where} name different tokenizers"
        f" ({first.name}, digest {first.digest[:12]}, and {info.name}, digest"
        f" {info.digest[:12]}). Ids of one mean other text in the other:"
        " prepare the corpus again with the tokenizer you train with."
      )
  given = {"vocab_size": vocab_size, "eod_id": eod_id, "pad_id": pad_id}
  if not known:
    for key in ("eod_id", "pad_id"):
      if None not in (given[key], vocab_size) and given[key] >= vocab_size:
        raise ValueError(
          f"{key} is {given[key]}, outside the vocabulary of"
          f" vocab_size={vocab_size} ids."
        )
    return TokenIds(**given)
  where, info = known[0]
  for key, value in given.items():
    if value is not None and value != getattr(info, key):
      raise ValueError(
        f"dataset.data_config.{key} is {value}, but {where} says"
        f" {getattr(info, key)}. Leave {key} out to take the latter."
      )
  # Where padding shares an id with an ending, that id may stand in a text.
  special = (info.eod_id, info.eos_id, info.bos_id)
  pad = None if info.pad_id in special else info.pad_id
  return TokenIds(info.vocab_size, info.eod_id, pad)
