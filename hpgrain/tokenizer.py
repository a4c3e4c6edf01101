"""A Hugging Face tokenizer's name in, its identity and its ids of texts out.

transformers takes seconds to import, so it is imported only when a tokenizer
is loaded; whoever reads a manifest never pays for it.
"""

import dataclasses
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

# Strings on which a faster encoder must agree with the tokenizer's own call
# before it is used: leading and repeated spaces, line ends, several scripts,
# combining marks, what no vocabulary holds.
PROBES = (
  "a",
  " a",
  "Hello,  world!\n\n\tdef f(x):\r\n  return x_1**2  # 12345\n",
  "naïve naïve Ⅷ ﬁ été 中文字符 Привет العربية 🙂👍🏽",
  "\u200b\x00\x7f \u3000x",
  "[CLS] <s> </s> <|endoftext|> [SEP] <pad>",
)


@dataclasses.dataclass(frozen=True)
class TokenizerInfo:
  """What a tokenized corpus has to remember of its tokenizer.

  Attributes:
    name: the folder or hub name it was loaded from; says nothing about its
      identity.
    digest: 32 hex digits over everything that decides its ids, the same for
      the same tokenizer from any folder.
    vocab_size: one more than the largest id it can give, added tokens
      included.
    eod_id: the id that ends a document: EOS, else SEP, else None.
    pad_id: the padding id, or None.
    bos_id: the id that begins a text, or None.
    eos_id: the id that ends a text, or None.
  """

  name: str
  digest: str
  vocab_size: int
  eod_id: int | None
  pad_id: int | None
  bos_id: int | None
  eos_id: int | None


def import_transformers() -> ModuleType:
  """Imports transformers, which takes seconds the first time."""
  # It would say that PyTorch is absent, which is no news here.
  os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
  import transformers

  return transformers


def load_tokenizer(
  path_or_name: str | os.PathLike[str],
  *,
  use_fast: bool = True,
  trust_remote_code: bool = False,
  local_files_only: bool = False,
) -> "PreTrainedTokenizerBase":
  """Loads a tokenizer through Hugging Face's AutoTokenizer.

  Args:
    path_or_name: a folder that `save_pretrained` wrote, or a name on the hub.
    use_fast: ask for the Rust tokenizer where both exist. transformers 5 and
      later always take it; False is then answered by a UserWarning.
    trust_remote_code: allow Python code of the tokenizer's repository to run.
    local_files_only: do not ask the hub for what is not here.

  Raises:
    ValueError: the folder is not there, or AutoTokenizer cannot load it.
  """
  name = os.fspath(path_or_name)
  folder = Path(name).expanduser()
  looks_local = name.startswith(("/", "./", "../", "~")) or name in (".", "..")
  if folder.is_file() or (looks_local and not folder.is_dir()):
    what = "is a file" if folder.is_file() else "does not exist"
    raise ValueError(
      f"The tokenizer folder {name!r} {what}. Give a folder that holds"
      " tokenizer.json and tokenizer_config.json, or a Hugging Face name like"
      " 'gpt2'."
    )
  transformers = import_transformers()
  try:
    tokenizer = transformers.AutoTokenizer.from_pretrained(
      str(folder) if folder.is_dir() else name,
      use_fast=use_fast,
      trust_remote_code=trust_remote_code,
      local_files_only=local_files_only,
    )
  except Exception as error:
    # Loaders of many models raise many types; the cause stays attached.
    said = " ".join(str(error).split())
    raise ValueError(
      f"Hugging Face AutoTokenizer cannot load {name!r}"
      f" (trust_remote_code={trust_remote_code}): {said} Give a folder that"
      " holds tokenizer.json and tokenizer_config.json, or a name that the"
      " hub or its local cache has."
    ) from error
  if not isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
    raise ValueError(
      f"AutoTokenizer gave a {type(tokenizer).__name__} for {name!r}, which is"
      " no Hugging Face tokenizer; only those are supported."
    )
  if not use_fast and tokenizer.is_fast:
    warnings.warn(
      f"use_fast=False has no effect on {name!r}: this transformers has only"
      " its fast tokenizer, and that is used.",
      UserWarning,
      stacklevel=2,
    )
  return tokenizer


def tokenizer_info(
  tokenizer: "PreTrainedTokenizerBase", *, require_eod: bool = False
) -> TokenizerInfo:
  """Describes a loaded tokenizer.

  Args:
    tokenizer: what `load_tokenizer` returned.
    require_eod: refuse a tokenizer that has no end-of-document id.

  Raises:
    ValueError: `require_eod`, and it has neither an EOS nor a SEP token.
  """
  special = {
    kind: _special_id(tokenizer, kind) for kind in ("eos", "sep", "pad", "bos")
  }
  eod_id = special["eos"] if special["eos"] is not None else special["sep"]
  name = str(tokenizer.name_or_path)
  if require_eod and eod_id is None:
    raise ValueError(
      f"The tokenizer {name!r} has neither an EOS nor a SEP token in its"
      " vocabulary, so documents cannot be ended. Set eos_token in its"
      " tokenizer_config.json, or turn append_eod off."
    )
  largest = max(tokenizer.get_vocab().values(), default=-1)
  return TokenizerInfo(
    name=name,
    digest=_digest(tokenizer, special),
    vocab_size=max(len(tokenizer), largest + 1),
    eod_id=eod_id,
    pad_id=special["pad"],
    bos_id=special["bos"],
    eos_id=special["eos"],
  )


def special_ids(tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
  """The ids that a text gets only where it spells out a special token.

  The unknown token's id is none of them, unless it has another task: ordinary
  text gets it too.
  """
  kinds = ("eos", "sep", "pad", "bos", "cls", "mask")
  named = {_special_id(tokenizer, kind) for kind in kinds}
  added = {
    index
    for index, token in tokenizer.added_tokens_decoder.items()
    if token.special
  }
  unknown = {tokenizer.unk_token_id}
  return tuple(sorted((named - {None}) | (added - unknown)))


def encode_by_call(
  tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], **options: Any
) -> list[list[int]]:
  """Ids of a batch of documents, by the tokenizer's own call: the reference.

  The tokenizer's own BOS, EOS, CLS or SEP are not put around a document, since
  the corpus has one rule of its own (one EOD, by whoever writes it) and a
  document cut into rows has no room for a second. A special token that is
  spelt out in the text becomes its id, as Hugging Face does, unless
  `split_special_tokens=True` is among the options.
  """
  # verbose=False: a document longer than the model is no news here.
  encoded = tokenizer(
    list(texts),
    add_special_tokens=False,
    return_attention_mask=False,
    return_token_type_ids=False,
    verbose=False,
    **options,
  )
  return encoded["input_ids"]


def backend_agrees(tokenizer: "PreTrainedTokenizerBase") -> bool:
  """Whether a tokenizer's Rust backend gives by itself what its call gives.

  The backend's batches are several times faster and run without the GIL.
  Truncation and padding left set in the backend are cleared.
  """
  if not tokenizer.is_fast:
    return False
  expected = encode_by_call(tokenizer, PROBES)
  encodings = tokenizer.backend_tokenizer.encode_batch_fast(
    list(PROBES), add_special_tokens=False
  )
  return [encoding.ids for encoding in encodings] == expected


def document_encoder(
  tokenizer: "PreTrainedTokenizerBase",
) -> Callable[[Sequence[str]], list[list[int]]]:
  """Returns the function that turns a batch of documents into lists of ids.

  The ids are those of `encode_by_call`; a fast tokenizer's batches go straight
  to its backend if that agrees.
  """
  if not backend_agrees(tokenizer):
    return lambda texts: encode_by_call(tokenizer, texts)
  backend: Any = tokenizer.backend_tokenizer

  def encode_fast(texts: Sequence[str]) -> list[list[int]]:
    encodings = backend.encode_batch_fast(list(texts), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]

  return encode_fast


def _special_id(tokenizer: "PreTrainedTokenizerBase", kind: str) -> int | None:
  """The id of a special token, or None if the vocabulary lacks it."""
  token = getattr(tokenizer, f"{kind}_token")
  index = getattr(tokenizer, f"{kind}_token_id")
  if token is None or index is None:
    return None
  # A token outside the vocabulary is answered with the unknown token's id.
  if index == tokenizer.unk_token_id and str(token) != tokenizer.unk_token:
    return None
  return int(index)


def _digest(
  tokenizer: "PreTrainedTokenizerBase", special: dict[str, int | None]
) -> str:
  """Hashes what decides the ids, and nothing of where it was loaded from."""
  digest = hashlib.blake2b(digest_size=16)

  def add(label: str, content: bytes) -> None:
    digest.update(f"{label} {len(content)}\n".encode())
    digest.update(content)

  add("special", json.dumps(special, sort_keys=True).encode())
  if tokenizer.is_fast:
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    # Left behind by the last call made, not a trait of the tokenizer.
    for passing in ("truncation", "padding"):
      backend.pop(passing, None)
    add("backend", json.dumps(backend, sort_keys=True).encode())
    return digest.hexdigest()
  add("class", type(tokenizer).__qualname__.encode())
  add("vocab", json.dumps(tokenizer.get_vocab(), sort_keys=True).encode())
  with tempfile.TemporaryDirectory() as folder:
    # Merges and models of tokenizers in Python are seen only in their files.
    for path in sorted(map(Path, tokenizer.save_vocabulary(folder))):
      add(path.name, path.read_bytes())
  return digest.hexdigest()
