"""A conversation in, the text that a chat template makes of it out."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hpgrain.tokenizer import import_transformers
from hpgrain.tools.inputs import BadTextError

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

# Instead of a template: the one that the tokenizer brings.
OWN = "tokenizer"


def read_template(value: str, tokenizer: "PreTrainedTokenizerBase") -> str:
  """The template that a flag's value stands for.

  Args:
    value: a Jinja template, the path of a file that holds one, or "tokenizer"
      for the tokenizer's own.
    tokenizer: what `load_tokenizer` returned.

  Raises:
    ValueError: there is no such file, or the tokenizer has no template.
  """
  if value == OWN:
    if not isinstance(tokenizer.chat_template, str):
      raise ValueError(
        f"The tokenizer {tokenizer.name_or_path!r} has no chat template of its"
        " own. Give one with --chat-template: a file, or the template itself."
      )
    return tokenizer.chat_template
  if "{%" in value or "{{" in value:
    return value
  path = Path(value)
  if not path.is_file():
    raise ValueError(
      f"--chat-template is neither a Jinja template nor a file: {value!r}."
      f" Give one of them, or {OWN!r} for the tokenizer's own."
    )
  return path.read_text(encoding="utf-8")


def renderer(pickled: bytes, template: str) -> Callable[[str], str]:
  """A function from a conversation's JSON to its text.

  The function raises `BadTextError` for a conversation that the template
  refuses.

  Args:
    pickled: the tokenizer, whose special tokens templates name.
    template: a Jinja template.
  """
  import_transformers()
  tokenizer = pickle.loads(pickled)

  def render(conversation: str) -> str:
    try:
      text = tokenizer.apply_chat_template(
        json.loads(conversation), chat_template=template, tokenize=False
      )
      text.encode("utf-8")
    except Exception as error:
      # Of any type, and its message may quote the conversation.
      raise BadTextError(
        "cannot be rendered by the chat template"
        f" ({type(error).__name__}). Look at it, or at the template."
      ) from None
    return text

  return render
