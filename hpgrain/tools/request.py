"""What a preparation is asked for, and what of it decides the bytes."""

import dataclasses
import hashlib
from typing import Any

from hpgrain.tokenizer import TokenizerInfo
from hpgrain.tools.encoder_spec import EncoderSpec


@dataclasses.dataclass(frozen=True)
class Sentences:
  """How texts are split into sentences, each a sequence of its own.

  Attributes:
    lang: of NLTK's Punkt model.
    keep_newlines: keep the line ends that stand between sentences.
  """

  lang: str
  keep_newlines: bool


@dataclasses.dataclass(frozen=True)
class Chat:
  """How conversations become texts.

  Attributes:
    template: of Jinja.
    pickled: the tokenizer that renders it.
  """

  template: str
  pickled: bytes

  @property
  def digest(self) -> str:
    """Names the template, in 32 hex digits."""
    return hashlib.blake2b(self.template.encode(), digest_size=16).hexdigest()


@dataclasses.dataclass(frozen=True)
class UnitRequest:
  """What decides the content of a prepared unit; sent to every worker.

  Attributes:
    keys: of the texts, each of which gives a pair.
    encoder: what encodes them.
    sentences: how to split them; None keeps them whole.
    chat: the texts are conversations, and this renders them; None: texts.
    refuse_special_tokens: a text that spells out a special token is bad.
    skip_bad_records: leave bad records out; else the first is an error.
    max_bad_records: more than these in a unit are an error too.
  """

  keys: tuple[str, ...]
  encoder: EncoderSpec
  sentences: Sentences | None
  chat: Chat | None
  refuse_special_tokens: bool
  skip_bad_records: bool
  max_bad_records: int


@dataclasses.dataclass(frozen=True)
class Layout:
  """How the units' documents become the final pairs.

  Attributes:
    partitions: P.
    keep_sequential_samples: partitions are blocks of ceil(N / P) records;
      else record i goes to partition i % P.
    pack_to_seq_len: S, for records of S + 1 tokens; None keeps documents.
    carry_tails: a partition's tail goes on in the next one.
    shuffle_seed: put the records in this seed's order first; None keeps the
      input's.
  """

  partitions: int = 1
  keep_sequential_samples: bool = False
  pack_to_seq_len: int | None = None
  carry_tails: bool = False
  shuffle_seed: int | None = None


def describe_units(
  request: UnitRequest, info: TokenizerInfo, inputs: list[dict[str, Any]]
) -> dict[str, Any]:
  """JSON of all that decides the units' content, for people to read too.

  Whether bad records are skipped is not in it: a unit that was finished
  without has none, and one that has some says so.
  """
  spec = request.encoder
  if request.refuse_special_tokens:
    special = "error"
  else:
    special = "plain" if spec.plain else "as_is"
  return {
    "version": 1,
    "json_keys": list(request.keys),
    # By whatever name it was loaded.
    "tokenizer": dataclasses.asdict(dataclasses.replace(info, name="")),
    "tokenizer_backend": f"{spec.backend} {spec.version}",
    "append_eod": spec.add_eod is not None,
    "special_tokens_in_text": special,
    "split_sentences": request.sentences
    and dataclasses.asdict(request.sentences),
    "chat_template": request.chat and request.chat.digest,
    "inputs": inputs,
  }
