"""A folder of Python source in, two lists of documents and a tokenizer out.

Files are found whatever order the folder lists them in, and taken in the order
of a hash of their names: any part of the corpus then looks like the whole, the
last few documents (a valid split) too, and a byte limit cuts no topic off.
"""

import dataclasses
import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from hpgrain.tokenizer import import_transformers

VOCAB_SIZE = 8192
EOS_TOKEN = "<|endoftext|>"

_TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
_OTHER_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})

# A table of a megabyte would be a corpus of its own, and fill the valid split.
_LARGEST_FILE = 128 * 1024
_TRAINING_BYTES = 5_000_000

# Where the test folders hold less than this share of what is asked of them
# (distributions strip them), every third file of all is taken instead.
_ENOUGH_TESTS = 1 / 4

Document = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Split:
  """Documents as (path, text), in a fixed order, and the files left out.

  Attributes:
    library: documents from outside the test folders.
    tests: documents from inside them, or an arbitrary third of all.
    skipped: files that are not UTF-8 or could not be read.
  """

  library: tuple[Document, ...]
  tests: tuple[Document, ...]
  skipped: int


def find_stdlib() -> Path:
  """The folder of the running Python's standard library."""
  return Path(sysconfig.get_paths()["stdlib"])


def split_text(folder: Path, *, max_bytes: int) -> Split:
  """Reads `.py` files under a folder, two thirds of the bytes for `library`.

  Raises:
    ValueError: fewer than two files with text are found.
  """
  library_bytes = max_bytes * 2 // 3
  tests_bytes = max_bytes - library_bytes
  library: list[Document] = []
  tests: list[Document] = []
  skipped = 0
  for name in _names(folder):
    try:
      # Not read as text: line ends stay as they are in the file.
      text = (folder / name).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
      skipped += 1
      continue
    within = not _TEST_FOLDERS.isdisjoint(Path(name).parts)
    (tests if within else library).append((name, text))
  if _num_bytes(tests) < _ENOUGH_TESTS * tests_bytes:
    together = sorted(library + tests, key=lambda document: _key(document[0]))
    tests = together[::3]
    library = [d for i, d in enumerate(together) if i % 3]
  split = Split(
    library=tuple(_first_bytes(library, library_bytes)),
    tests=tuple(_first_bytes(tests, tests_bytes)),
    skipped=skipped,
  )
  if not _num_bytes(split.library) or not _num_bytes(split.tests):
    raise ValueError(
      f"Found no source text for two corpora under {folder} (a zipped or"
      " stripped standard library?), only"
      f" {len(library)} and {len(tests)} files. Use a Python whose standard"
      " library lies there as .py files."
    )
  return split


def train_tokenizer(split: Split, folder: Path) -> None:
  """Trains a byte-level BPE on a split, saves it as a Hugging Face tokenizer.

  It has `VOCAB_SIZE` ids (fewer for little text), `<|endoftext|>` as EOS and
  no other special token.
  """
  import tokenizers
  from tokenizers import decoders, models, pre_tokenizers, trainers

  tokenizer = tokenizers.Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=VOCAB_SIZE,
    special_tokens=[EOS_TOKEN],
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    show_progress=False,
  )
  third = _TRAINING_BYTES // 3
  documents = _first_bytes(split.library, _TRAINING_BYTES - third)
  documents += _first_bytes(split.tests, third)
  tokenizer.train_from_iterator((text for _, text in documents), trainer)

  import_transformers().PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, eos_token=EOS_TOKEN
  ).save_pretrained(folder)


def _names(folder: Path) -> Iterator[str]:
  """Relative names of the `.py` files to take, by the hash of the name."""
  names = []
  for path in folder.rglob("*.py"):
    relative = path.relative_to(folder)
    if not _OTHER_FOLDERS.isdisjoint(relative.parts):
      continue
    if path.is_file() and path.stat().st_size <= _LARGEST_FILE:
      names.append(relative.as_posix())
  return iter(sorted(names, key=_key))


def _key(name: str) -> tuple[bytes, str]:
  return hashlib.blake2b(name.encode(), digest_size=8).digest(), name


def _num_bytes(documents: list[Document] | tuple[Document, ...]) -> int:
  return sum(len(text.encode()) for _, text in documents)


def _first_bytes(
  documents: list[Document] | tuple[Document, ...], limit: int
) -> list[Document]:
  """The first documents of a list, until they reach a number of bytes."""
  taken: list[Document] = []
  for document in documents:
    if limit <= 0:
      break
    taken.append(document)
    limit -= len(document[1].encode())
  return taken
