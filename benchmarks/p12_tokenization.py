"""P12: records of text to examples, one core, against the backend used bare.

  files of text -> records of about 2,000 characters, none twice
                -> PlaintextTransform: reads the field, encodes, ends and cuts
                -> bare: the backend on the same texts, and its ids as an array

Tokenizers remember the words they met, so every turn has text that neither
has seen. Seconds are the process's own on all processors.

  python p12_tokenization.py --tokenizer=/models/qwen3
"""

import argparse
import itertools
import os
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# Neither is to use more than one core.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import common
import numpy as np
from p11_preparation import texts

from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools.example_text import find_stdlib, split_text, train_tokenizer
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer
from hpgrain.transforms.plaintext import PlaintextTransform

_RECORD = 2000
_BATCH = 256
_MAX_SEQ_LEN = 4096
_GOAL = ">= 0.85x"
_MB = 1e6

_Batch = list[dict[str, str]]


def _records(folders: Sequence[Path]) -> Iterator[dict[str, str]]:
  """Yields texts of whole lines, about as long as each other."""
  for text in texts(folders):
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
      lines.append(line)
      if sum(map(len, lines)) >= _RECORD:
        yield {"text": "".join(lines)}
        lines = []
    if lines:
      yield {"text": "".join(lines)}


def _bare(backend: str, tokenizer_json: str) -> Callable[[_Batch], object]:
  """Returns what encodes the texts of records, and nothing else."""
  if backend == "gigatoken":
    import gigatoken

    fast = gigatoken.Tokenizer.from_json(tokenizer_json).backend

    def encode(batch: _Batch) -> object:
      found = [record["text"] for record in batch]
      layout = fast.encode_batch(found, parallel=False).layout
      return np.asarray(layout.content.data), np.asarray(layout.offsets)

    return encode
  import tokenizers

  reference = tokenizers.Tokenizer.from_str(tokenizer_json)

  def encode_slowly(batch: _Batch) -> object:
    encoded = reference.encode_batch_fast(
      [record["text"] for record in batch], add_special_tokens=False
    )
    rows = [encoding.ids for encoding in encoded]
    return np.concatenate([np.array(row, np.uint32) for row in rows]), rows

  return encode_slowly


def _ours(backend: str, tokenizer: LazyTokenizer) -> Callable[[_Batch], object]:
  transform = PlaintextTransform(
    tokenizer, max_seq_len=_MAX_SEQ_LEN, backend=backend
  )
  return lambda batch: transform(batch, str)


def _next(
  function: Callable[[_Batch], object], batches: Sequence[_Batch]
) -> Callable[[int], object]:
  """Returns a call that takes one batch after the other."""
  rest = iter(batches)
  return lambda _: function(next(rest))


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields each backend, ours against it bare."""
  name = options.tokenizer
  if not name:
    name = str(folder / "tokenizer")
    Path(name).mkdir()
    split = split_text(find_stdlib(), max_bytes=9_000_000)
    train_tokenizer(split, Path(name))
  tokenizer = LazyTokenizer(name)
  content = load_tokenizer(name).backend_tokenizer.to_str()
  paths = sysconfig.get_paths()
  folders = [Path(paths["stdlib"]), Path(paths["purelib"])]
  if options.text:
    folders = [Path(options.text)]
  records = _records(folders)
  for backend, count in (
    ("gigatoken", options.batches),
    ("huggingface", options.slow_batches),
  ):
    if not count:
      continue
    work = f"tokenizing while training, {backend}"
    if not common.is_installed(
      {"huggingface": "tokenizers"}.get(backend, backend)
    ):
      yield common.missing("P12", work, backend, _GOAL)
      continue
    total = (options.repeats + 1) * count
    batches = [list(itertools.islice(records, _BATCH)) for _ in range(total)]
    if len(batches[-1]) < _BATCH:
      raise RuntimeError(
        f"The text has no {total} batches of records: take fewer repeats or"
        " batches, or name more text with --text."
      )
    calls = {
      "ours": _ours(backend, tokenizer),
      backend: _bare(backend, content),
    }
    times = common.in_turn(
      {what: _next(function, batches) for what, function in calls.items()},
      repeats=options.repeats,
      times=count,
      clock=time.process_time,
    )
    size = sum(len(r["text"].encode()) for b in batches for r in b) / total
    ratio = times.ratio(backend, "ours")
    yield common.Row(
      "P12",
      work,
      f"{size / _MB / times['ours']:.3g} MB/s",
      f"{backend} bare: {size / _MB / times[backend]:.3g} MB/s",
      f"{ratio:.2f}x",
      _GOAL,
      ratio >= 0.85,
    )


if __name__ == "__main__":
  common.run(
    measure, batches=8, slow_batches=1, repeats=11, text="", tokenizer=""
  )
