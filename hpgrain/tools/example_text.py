"""A folder of Python source in, two lists of documents and a tokenizer out.

Files are found whatever order the folder lists them in, and taken in the order
of a hash of their names: any part of the corpus then looks like the whole, the
last few documents (a valid split) too, and a byte limit cuts no topic off.
"""

import dataclasses
import hashlib
import itertools
import sysconfig
from collections.abc import Iterator, Sequence
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
    skipped: files met that are not UTF-8 or could not be read.
  """

  library: tuple[Document, ...]
  tests: tuple[Document, ...]
  skipped: int


def find_stdlib() -> Path:
  """The folder of the running Python's standard library."""
  return Path(sysconfig.get_paths()["stdlib"])


def split_text(folder: Path, *, max_bytes: int) -> Split:
  """Reads `.py` files under a folder, two thirds of the bytes for `library`.

  Each part ends with the document that reaches its bytes.

  Raises:
    ValueError: there is not text enough for two parts.
  """
  library_bytes = max_bytes * 2 // 3
  tests_bytes = max_bytes - library_bytes
  sizes = _sizes(folder)
  tests = [
    name for name in sizes if not _TEST_FOLDERS.isdisjoint(Path(name).parts)
  ]
  if sum(sizes[name] for name in tests) < _ENOUGH_TESTS * tests_bytes:
    tests = list(sizes)[::3]
  others = sizes.keys() - set(tests)
  library = [name for name in sizes if name in others]
  library_read, library_skipped = _read(folder, library, library_bytes)
  tests_read, tests_skipped = _read(folder, tests, tests_bytes)
  if not all(
    any(text for _, text in part) for part in (library_read, tests_read)
  ):
    raise ValueError(
      f"Found no source text for two corpora under {folder}, only"
      f" {len(sizes)} files. Use a Python whose standard library lies there"
      " as .py files, neither zipped nor stripped."
    )
  return Split(
    library=library_read,
    tests=tests_read,
    skipped=library_skipped + tests_skipped,
  )


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
  texts = itertools.chain(
    _training_texts(split.library, _TRAINING_BYTES - third),
    _training_texts(split.tests, third),
  )
  tokenizer.train_from_iterator(texts, trainer)
  import_transformers().PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, eos_token=EOS_TOKEN
  ).save_pretrained(folder)


def _sizes(folder: Path) -> dict[str, int]:
  """Names of the `.py` files to take, by the hash of the name, and sizes."""
  sizes = {}
  for path in folder.rglob("*.py"):
    relative = path.relative_to(folder)
    if path.is_file() and _OTHER_FOLDERS.isdisjoint(relative.parts):
      sizes[relative.as_posix()] = path.stat().st_size
  names = sorted(
    (name for name, size in sizes.items() if size <= _LARGEST_FILE),
    key=lambda name: hashlib.blake2b(name.encode(), digest_size=8).digest(),
  )
  return {name: sizes[name] for name in names}


def _read(
  folder: Path, names: Sequence[str], num_bytes: int
) -> tuple[tuple[Document, ...], int]:
  """Reads files until a number of bytes; counts those that cannot be read."""
  documents: list[Document] = []
  skipped = 0
  for name in names:
    if num_bytes <= 0:
      break
    try:
      content = (folder / name).read_bytes()
      # Not read as text: line ends stay as they are in the file.
      documents.append((name, content.decode("utf-8")))
      num_bytes -= len(content)
    except (OSError, UnicodeDecodeError):
      skipped += 1
  return tuple(documents), skipped


def _training_texts(
  documents: Sequence[Document], num_bytes: int
) -> Iterator[str]:
  """The texts of the first documents, until a number of bytes."""
  for _, text in documents:
    if num_bytes <= 0:
      return
    yield text
    num_bytes -= len(text.encode())
