r"""Makes a small real corpus out of what every Python installation carries.

  standard library's .py files -+-> library.jsonl --+--> library_text_document
                                |                   +--> library_packed_text_...
                                +-> tests.jsonl -------> tests_text_document
                                |                   +--> tests_ids.jsonl
                                +-> questions.jsonl, chats.jsonl
                                |
                                +-> tokenizer/  a byte-level BPE of 8,192 ids

It needs no network, is the same each time on a given Python, and is made once:
any number of processes may ask for it at the same moment, one does the work
and the others wait. The file `.prepared.json`, written last, says it is done.

Command to run:

python -m hpgrain.tools.embedded_example --output-dir /tmp/example
"""

import argparse
import contextlib
import fcntl
import itertools
import json
import platform
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hpgrain.sources.indexed import IndexedReader
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools.corpus import prepare_corpus
from hpgrain.tools.example_chats import make_chats, make_questions
from hpgrain.tools.example_text import (
  Split,
  find_stdlib,
  split_text,
  train_tokenizer,
)

_VERSION = 1
_MARKER = ".prepared.json"
# What is being made lies here, so that a killed run leaves no half file under
# a name that something reads.
_PARTIAL = ".partial"
_PACKED_SEQ_LEN = 256
# Parsing all the library would take some seconds more.
_QUESTIONS = 2000
_CORPORA = (
  ("library", "library.jsonl", None),
  ("tests", "tests.jsonl", None),
  ("library_packed", "library.jsonl", _PACKED_SEQ_LEN),
)
_PRODUCTS = (
  "library.jsonl",
  "tests.jsonl",
  "questions.jsonl",
  "chats.jsonl",
  "tests_ids.jsonl",
  "tokenizer",
  *(f"{name}_text_document.bin" for name, _, _ in _CORPORA),
  *(f"{name}_text_document.idx" for name, _, _ in _CORPORA),
  *(f"{name}_text_document.manifest.json" for name, _, _ in _CORPORA),
)


def prepare(
  folder: str,
  *,
  max_bytes: int = 9_000_000,
  stdlib: Path | None = None,
) -> None:
  """Makes the example in `folder`, or returns at once if it is there.

  Made are `library.jsonl` and `tests.jsonl` (text inside and outside the test
  folders), `questions.jsonl` (`question` and `answer`, short) and `chats.jsonl`
  (`messages`), `tokenizer/` (Hugging Face, EOS `<|endoftext|>`), the pairs
  `library_text_document`, `tests_text_document` (documents of any length) and
  `library_packed_text_document` (records of 257 tokens), each with its
  manifest, and `tests_ids.jsonl` (`input_ids`, those of the second pair).
  Progress goes to stderr.

  Args:
    folder: where to make it; made if missing.
    max_bytes: bytes of text taken, two thirds of them for the library.
    stdlib: the folder to take `.py` files from; the running Python's standard
      library if None.

  Raises:
    ValueError: the folder holds an example of another size or version, or no
      source text can be found.
  """
  if max_bytes <= 0:
    raise ValueError(f"max_bytes must be positive, got {max_bytes}.")
  root = Path(folder)
  if _is_prepared(root, max_bytes):
    return
  root.mkdir(parents=True, exist_ok=True)
  with _locked(root / ".lock"):
    # Another process may have finished while this one waited.
    if not _is_prepared(root, max_bytes):
      _make(root, max_bytes, find_stdlib() if stdlib is None else stdlib)


def _make(root: Path, max_bytes: int, stdlib: Path) -> None:
  """Makes everything anew; the lock is held."""
  start = time.monotonic()

  def say(text: str) -> None:
    print(
      f"example data: {time.monotonic() - start:5.1f} s  {text}",
      file=sys.stderr,
      flush=True,
    )

  # First, so that nobody takes a half renewed folder for a finished one.
  (root / _MARKER).unlink(missing_ok=True)
  partial = root / _PARTIAL
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir()
  say(f"reading the text of {stdlib} into {root}")
  split = split_text(stdlib, max_bytes=max_bytes)
  for name, documents in (("library", split.library), ("tests", split.tests)):
    records = [{"path": path, "text": text} for path, text in documents]
    _write(partial / f"{name}.jsonl", records)
    say(f"{name}.jsonl: {len(documents):,} documents")
  questions = make_questions(split.library)
  questions = list(itertools.islice(questions, _QUESTIONS))
  chats = list(make_chats(questions))
  _write(partial / "questions.jsonl", questions)
  _write(partial / "chats.jsonl", chats)
  say(f"questions.jsonl: {len(questions):,}; chats.jsonl: {len(chats):,}")
  say(f"files left out, not UTF-8 or not readable: {split.skipped}")

  train_tokenizer(split, partial / "tokenizer")
  say("tokenizer/: a byte-level BPE, trained")
  texts = ("library.jsonl", "tests.jsonl", "questions.jsonl", "chats.jsonl")
  _move(partial, root, *texts, "tokenizer")

  tokenizer = load_tokenizer(root / "tokenizer")
  for name, source, pack_to_seq_len in _CORPORA:
    manifest = prepare_corpus(
      root / source,
      output_prefix=partial / name,
      tokenizer=tokenizer,
      pack_to_seq_len=pack_to_seq_len,
      log_interval=0,
    )
    pair = f"{name}_text_document"
    # The index is the last that a reader needs.
    _move(partial, root, f"{pair}.bin", f"{pair}.manifest.json", f"{pair}.idx")
    say(
      f"{pair}: {manifest.tokens:,} tokens in {manifest.documents:,}"
      f" {'records' if pack_to_seq_len else 'documents'}"
    )
  ids = IndexedReader(root / "tests_text_document")
  _write(
    partial / "tests_ids.jsonl",
    ({"input_ids": ids[i].tolist()} for i in range(len(ids))),
  )
  _move(partial, root, "tests_ids.jsonl")
  say(f"tests_ids.jsonl: {len(ids):,} records of token ids")
  _mark(root, partial, max_bytes, split)
  say("done")


def _write(path: Path, records: Iterable[dict[str, Any]]) -> None:
  """Writes JSON Lines."""
  with path.open("w", encoding="utf-8") as file:
    for record in records:
      json.dump(record, file, ensure_ascii=False)
      file.write("\n")


def _move(partial: Path, root: Path, *names: str) -> None:
  """Puts finished files and folders in place of what an earlier run left."""
  for name in names:
    target = root / name
    if target.is_dir():
      shutil.rmtree(target)
    (partial / name).replace(target)


def _mark(root: Path, partial: Path, max_bytes: int, split: Split) -> None:
  content = {
    "version": _VERSION,
    "python": platform.python_version(),
    "max_bytes": max_bytes,
    "library_documents": len(split.library),
    "tests_documents": len(split.tests),
    "skipped_files": split.skipped,
  }
  (partial / _MARKER).write_text(json.dumps(content, indent=2) + "\n")
  _move(partial, root, _MARKER)
  shutil.rmtree(partial)


def _is_prepared(root: Path, max_bytes: int) -> bool:
  """Whether the marker names what is asked for, and all of it is there."""
  try:
    content = json.loads((root / _MARKER).read_text(encoding="utf-8"))
  except FileNotFoundError:
    return False
  found = content.get("version"), content.get("max_bytes")
  if found != (_VERSION, max_bytes):
    raise ValueError(
      f"{root} holds example data of version {found[0]} made from {found[1]}"
      f" bytes of text; version {_VERSION} from {max_bytes} bytes is wanted."
      " Remove the folder or give another."
    )
  return all((root / name).exists() for name in _PRODUCTS)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
  """Holds an exclusive lock on a file; the kernel lets go if we are killed."""
  with path.open("w") as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      print(
        f"example data: waiting for another process, which makes it in"
        f" {path.parent}",
        file=sys.stderr,
        flush=True,
      )
      fcntl.flock(file, fcntl.LOCK_EX)
    yield


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog="embedded_example",
    allow_abbrev=False,
    description=(
      "Makes a small real corpus from the source text of Python's standard"
      " library: JSON Lines of text, questions, conversations and token ids, a"
      " tokenizer trained on the text, and tokenized pairs, which the example"
      " configs read. It takes about 15"
      " seconds and no network; a second call returns at once."
    ),
  )
  parser.add_argument(
    "--output-dir",
    required=True,
    metavar="DIR",
    help="where to make it; made if missing",
  )
  flags = parser.parse_args(argv)
  try:
    prepare(flags.output_dir)
  except (OSError, ValueError) as error:
    print(f"embedded_example: {type(error).__name__}: {error}", file=sys.stderr)
    return 1
  print(f"the example data is in {flags.output_dir}")
  return 0


if __name__ == "__main__":
  sys.exit(main())
