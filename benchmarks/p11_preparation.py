"""P11: JSON Lines to a pair, against the loop that does nothing else.

  files of text -> corpus.jsonl -> each tool, in a process of its own
                -> one.jsonl       what starting takes: counted, and apart

A tool's seconds are those of all its processes, user and system. No text is
in the corpus twice: tokenizers remember what they met. What runs with Hugging
Face takes a part of the corpus, since it is tens of times slower.

  python p11_preparation.py --tokenizer=/models/qwen3 --peer-python=PYTHON
"""

import argparse
import dataclasses
import hashlib
import json
import os
import random
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import common
import numpy as np

from hpgrain.tokenizer import load_tokenizer, tokenizer_info
from hpgrain.tools.encoders import make_encoder
from hpgrain.tools.example_text import find_stdlib, split_text, train_tokenizer

_SUFFIXES = (".py", ".pyi", ".rst", ".md", ".txt", ".h", ".html", ".js")
_LOOPS = Path(__file__).with_name("p11_loops.py")
_GOAL = ">= 1x"
_MB = 1e6


@dataclasses.dataclass(frozen=True)
class Corpus:
  """A file of JSON Lines and the bytes of its texts."""

  path: Path
  text_bytes: int


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a command took: seconds, seconds of all processors, bytes at most."""

  wall: float
  cpu: float
  peak: int


def texts(folders: Iterable[Path]) -> Iterator[str]:
  """Yields the texts of files in folders, none twice, in a random order."""
  paths = sorted(
    Path(root) / name
    for folder in folders
    for root, _, names in os.walk(folder)
    for name in names
    if name.endswith(_SUFFIXES)
  )
  random.Random(0).shuffle(paths)
  seen = set()
  for path in paths:
    try:
      data = path.read_bytes()
      text = data.decode()
    except (OSError, UnicodeDecodeError):
      continue
    digest = hashlib.blake2b(data, digest_size=16).digest()
    if text and digest not in seen:
      seen.add(digest)
      yield text


def write(path: Path, found: Iterator[str], most: float) -> Corpus:
  total = 0
  with path.open("w", encoding="utf-8") as file:
    for i, text in enumerate(found):
      json.dump({"id": i, "text": text}, file, ensure_ascii=False)
      file.write("\n")
      total += len(text.encode())
      if total >= most:
        break
  return Corpus(path, total)


def measured(command: list[str]) -> Cost:
  """Runs a command.

  Raises:
    RuntimeError: it failed; with what it said.
  """
  began = time.perf_counter()
  with subprocess.Popen(
    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
  ) as process:
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(process.stdout.read()))
    reader.start()
    peak = 0
    while True:
      done, status, usage = os.wait4(process.pid, os.WNOHANG)
      if done:
        break
      peak = max(peak, common.tree_bytes(process.pid))
      time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
  if process.returncode:
    raise RuntimeError(f"{' '.join(command)} failed:\n{said[0]}")
  elapsed = time.perf_counter() - began
  return Cost(elapsed, usage.ru_utime + usage.ru_stime, peak)


def same_ids(one: Path, other: Path) -> str:
  """Says whether two files hold the same bytes."""
  first, second = (np.fromfile(path, np.uint8) for path in (one, other))
  if np.array_equal(first, second):
    return "same bytes"
  return f"{len(first)} and {len(second)} bytes, NOT the same"


class Bench:
  """Runs tools on corpora and makes rows of what they cost."""

  def __init__(self, folder: Path, tokenizer: Path, one: Corpus, repeats: int):
    self._folder = folder
    self._tokenizer = tokenizer
    self._one = one
    self._repeats = repeats

  def output(self, name: str) -> Path:
    return self._folder / name.replace(" ", "_").replace(",", "")

  def costs(
    self, corpus: Corpus, tools: Mapping[str, list[str]]
  ) -> dict[str, list[tuple[Cost, Cost]]]:
    """(starting, all) of each tool, turn by turn."""
    found: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in tools}
    for turn in range(self._repeats):
      names = list(tools)
      for shift in range(len(names)):
        name = names[(turn + shift) % len(names)]
        python, loop, *more = tools[name]
        command = [python, str(_LOOPS), loop]
        given = str(self._tokenizer), str(self.output(name)), *more
        # The small one first: the large one's output is looked at.
        costs = [
          measured([*command, str(path), *given])
          for path in (self._one.path, corpus.path)
        ]
        found[name].append((costs[0], costs[1]))
    return found

  def rows(
    self,
    corpus: Corpus,
    found: Mapping[str, list[tuple[Cost, Cost]]],
    base: str,
    goals: Iterable[str],
  ) -> Iterator[common.Row]:
    def rate(name: str, *, starting: bool) -> np.ndarray:
      return np.array(
        [
          corpus.text_bytes / _MB / (a.cpu - (0 if starting else small.cpu))
          for small, a in found[name]
        ]
      )

    for name, costs in found.items():
      wall = np.median([a.wall for _, a in costs])
      ours = float(np.median(rate(name, starting=False)))
      peer = float(np.median(rate(base, starting=False)))
      ratio = float(
        np.median(rate(name, starting=False) / rate(base, starting=False))
      )
      whole = float(np.median(rate(name, starting=True)))
      start = float(np.median([small.cpu for small, _ in costs]))
      peak = max(a.peak for _, a in costs) / _MB
      yield common.Row(
        "P11",
        f"{corpus.text_bytes / _MB:.0f} MB of text, {name}",
        f"{ours:.3g} MB/s per CPU-second ({whole:.3g} with a start of"
        f" {start:.2g} s), {corpus.text_bytes / _MB / wall:.3g} MB/s of wall,"
        f" {peak:.0f} MB",
        f"{base}: {peer:.3g}",
        f"{ratio:.2f}x",
        _GOAL if name in goals else "",
        ratio >= 1 if name in goals else None,
      )


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  tokenizer = folder / "tokenizer"
  tokenizer.mkdir()
  if options.tokenizer:
    # As the loops open it, whatever files it came in.
    load_tokenizer(options.tokenizer).save_pretrained(tokenizer)
  else:
    split = split_text(find_stdlib(), max_bytes=9_000_000)
    train_tokenizer(split, tokenizer)
  loaded = load_tokenizer(tokenizer)
  info = tokenizer_info(loaded, require_eod=True)
  spec = make_encoder(loaded, sample=[], backend="huggingface").spec
  (tokenizer / "p11.json").write_text(
    json.dumps(
      {
        "dtype": spec.dtype.name,
        "eod_id": info.eod_id,
        "eod": loaded.convert_ids_to_tokens(info.eod_id),
      }
    )
  )
  paths = sysconfig.get_paths()
  folders = [Path(paths["stdlib"]), Path(paths["purelib"])]
  if options.text:
    folders = [Path(options.text)]
  corpus = write(
    folder / "corpus.jsonl", texts(folders), options.megabytes * _MB
  )
  part = write(
    folder / "part.jsonl", texts(folders), options.slow_megabytes * _MB
  )
  one = write(folder / "one.jsonl", iter(["One."]), 1)
  bench = Bench(folder, tokenizer, one, options.repeats)
  tools = {
    "bare loop": [sys.executable, "bare_loop"],
    "ours, 1 worker": [sys.executable, "ours", "gigatoken", "1"],
    "ours, 2 workers": [sys.executable, "ours", "gigatoken", "2"],
  }
  found = bench.costs(corpus, tools)
  yield from bench.rows(corpus, found, "bare loop", ["ours, 1 worker"])
  bare = bench.output("bare loop")
  for name in list(tools)[1:]:
    pair = Path(f"{bench.output(name)}_text_document.bin")
    print(f"{name} against the bare loop: {same_ids(pair, bare)}")
  slow = {
    "bare Hugging Face": [sys.executable, "bare_huggingface"],
    "ours with Hugging Face": [sys.executable, "ours", "huggingface", "1"],
    "ours with gigatoken": [sys.executable, "ours", "gigatoken", "1"],
  }
  if options.peer_python:
    slow["datatrove"] = [options.peer_python, "datatrove"]
  found = bench.costs(part, slow)
  yield from bench.rows(part, found, "bare Hugging Face", [])
  bare = bench.output("bare Hugging Face")
  for name in ("ours with Hugging Face", "ours with gigatoken"):
    pair = Path(f"{bench.output(name)}_text_document.bin")
    print(f"{name} against bare Hugging Face: {same_ids(pair, bare)}")
  if not options.peer_python:
    yield common.missing("P11", "JSON Lines to tokens", "datatrove", "")


if __name__ == "__main__":
  common.run(
    measure,
    megabytes=60,
    slow_megabytes=6,
    repeats=3,
    text="",
    tokenizer="",
    peer_python="",
  )
