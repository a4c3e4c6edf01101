"""A tokenizer that is opened when it is first asked for, once a process.

Transforms of train and valid, and copies of them in threads, share what is
opened; a pickle holds the name alone, and another process opens its own.
"""

import functools
import os
import threading
from typing import TYPE_CHECKING, Any

from hpgrain.tokenizer import TokenizerInfo, load_tokenizer, tokenizer_info

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

# Held while a tokenizer is loaded or called, as openers of encoders call it to
# see what it does: two threads in one fail ("Already borrowed").
OPENING = threading.RLock()


class LazyTokenizer:
  """A Hugging Face tokenizer by its name.

  The tokenizer itself is not for several threads at once: whoever calls one of
  its methods that encode holds a lock of their own.
  """

  def __init__(
    self,
    pretrained_model_name_or_path: "str | os.PathLike[str] | Any",
    *,
    use_fast: bool = True,
    trust_remote_code: bool = False,
  ) -> None:
    """Remembers what to open; nothing is read.

    Args:
      pretrained_model_name_or_path: a folder or a hub name; or a tokenizer
        that is loaded already, which a pickle then carries.
      use_fast: as `tokenizer.load_tokenizer`.
      trust_remote_code: as `tokenizer.load_tokenizer`.
    """
    self._given: PreTrainedTokenizerBase | None = None
    self._name = ""
    if isinstance(pretrained_model_name_or_path, (str, os.PathLike)):
      self._name = os.fspath(pretrained_model_name_or_path)
    elif hasattr(pretrained_model_name_or_path, "apply_chat_template"):
      self._given = pretrained_model_name_or_path
    else:
      raise ValueError(
        "The tokenizer must be a folder, a Hugging Face name, or one that is"
        f" loaded, got {type(pretrained_model_name_or_path).__name__}. Set"
        " model_assets.tokenizer.pretrained_model_name_or_path."
      )
    self._options = (use_fast, trust_remote_code)

  def open(self) -> "PreTrainedTokenizerBase":
    """The tokenizer, loaded the first time.

    Raises:
      ValueError: it cannot be loaded.
    """
    if self._given is not None:
      return self._given
    with OPENING:
      return _load(self._name, *self._options)

  def info(self) -> TokenizerInfo:
    """What `tokenizer_info` says of it; found once."""
    return self._info

  @functools.cached_property
  def _info(self) -> TokenizerInfo:
    if self._given is not None:
      return tokenizer_info(self._given)
    with OPENING:
      return _load_info(self._name, *self._options)

  def __getstate__(self) -> dict[str, Any]:
    """What a pickle carries: not what was opened by name."""
    return {k: v for k, v in self.__dict__.items() if k != "_info"}


@functools.lru_cache(maxsize=8)
def _load(
  name: str, use_fast: bool, trust_remote_code: bool
) -> "PreTrainedTokenizerBase":
  return load_tokenizer(
    name, use_fast=use_fast, trust_remote_code=trust_remote_code
  )


@functools.lru_cache(maxsize=8)
def _load_info(
  name: str, use_fast: bool, trust_remote_code: bool
) -> TokenizerInfo:
  return tokenizer_info(_load(name, use_fast, trust_remote_code))
