"""A tokenizer and strings in, the tokenizer that has them out, and written.

  {prefix}_tokenizer.{process}.tmp/   written
  {prefix}_tokenizer/                 by one rename

It is written before the corpus that needs it, so that a corpus is never there
without it; the same strings give the same files.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpgrain.tokenizer import tokenizer_info
from hpgrain.tools import durable, storage
from hpgrain.tools.options import Options

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase


def add_special_tokens(
  tokenizer: "PreTrainedTokenizerBase",
  tokens: Sequence[str],
  options: Options,
) -> "PreTrainedTokenizerBase":
  """Makes strings special tokens, and writes the tokenizer that has them.

  Args:
    tokenizer: to be changed.
    tokens: the strings.
    options: of the preparation; they name the folder `{prefix}_tokenizer`.

  Returns:
    The tokenizer, under the name of that folder.

  Raises:
    ValueError: a string is empty.
    FileExistsError: another tokenizer is there, and `overwrite` is off.
  """
  if not all(tokens):
    raise ValueError(
      f"A special token must be a string that is not empty, got"
      f" {list(tokens)!r}."
    )
  tokenizer.add_tokens(list(tokens), special_tokens=True)
  folder = storage.as_path(f"{os.fspath(options.output_prefix)}_tokenizer")
  tokenizer.name_or_path = str(folder)
  if storage.is_url(folder):
    with storage.filled_folder(folder) as local:
      tokenizer.save_pretrained(local)
    return tokenizer
  _write(tokenizer, Path(folder), overwrite=options.overwrite)
  return tokenizer


def _write(tokenizer: Any, folder: Path, *, overwrite: bool) -> None:
  folder.parent.mkdir(parents=True, exist_ok=True)
  temporary = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
  try:
    tokenizer.save_pretrained(temporary)
    for path in temporary.iterdir():
      with path.open("rb") as file:
        os.fsync(file.fileno())
    if folder.exists():
      if not overwrite and not _is_same(tokenizer, folder):
        raise FileExistsError(
          f"{folder} holds another tokenizer. Give another output prefix,"
          " remove that folder, or allow it with --overwrite."
        )
      shutil.rmtree(folder)
    temporary.replace(folder)
    durable.sync_folder(folder.parent)
  finally:
    shutil.rmtree(temporary, ignore_errors=True)


def _is_same(tokenizer: Any, folder: Path) -> bool:
  """Whether a folder has this tokenizer, or the half of one."""
  from hpgrain.tokenizer import load_tokenizer

  try:
    there = load_tokenizer(str(folder))
  except (OSError, ValueError):
    return False
  ours, theirs = tokenizer_info(tokenizer), tokenizer_info(there)
  return ours.digest == theirs.digest
