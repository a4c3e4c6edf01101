"""Memory that does not grow with the input: more of it, or longer records.

The whole size is prepared where HPGRAIN_TEST_LARGE=1 is set: it takes some
minutes and 20 GB of disk.
"""

import gzip
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from hpgrain.tools import fast_backend
from hpgrain.tools.encoders import make_encoder

pytestmark = pytest.mark.skipif(
  fast_backend.version() is None, reason="too slow without gigatoken"
)
large = pytest.mark.skipif(
  os.environ.get("HPGRAIN_TEST_LARGE") != "1",
  reason="takes minutes: set HPGRAIN_TEST_LARGE=1",
)
GIGABYTE = 10**9

# Prepares a file within a limit of what a process may hold, then says what it
# and the largest of its workers held at most, in bytes.
_RUN = """
import json, resource, sys
arguments = json.loads(sys.argv[1])
limit = arguments.pop("limit")
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools import engine
from hpgrain.tools.corpus import prepare_corpus
engine.SMALL_INPUT_BYTES = arguments.pop("small")
source = arguments.pop("source")
tokenizer = load_tokenizer(arguments.pop("tokenizer"))
manifest = prepare_corpus(
  source, tokenizer=tokenizer, workers=2, log_interval=0, **arguments)
# Not our ru_maxrss, which begins with that of the process that started us.
lines = open("/proc/self/status").read().splitlines()
peak = next(int(l.split()[1]) for l in lines if l.startswith("VmHWM"))
worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
held = [1024 * peak, 1024 * worker]
print(json.dumps([manifest.records, manifest.bad_records, *held]))
"""


def run(source, tokenizer, *, limit=GIGABYTE, small=1 << 60, **options):
  """(records, bad ones, bytes this process held, bytes a worker held)."""
  arguments = options | {
    "source": str(source),
    "output_prefix": str(source.with_name("x")),
    "tokenizer": str(tokenizer),
    "limit": limit,
    "small": small,
    "overwrite": True,
  }
  done = subprocess.run(
    [sys.executable, "-c", _RUN, json.dumps(arguments)],
    capture_output=True,
    text=True,
    check=False,
    # Each thread reserves a stack of 8 MB, which counts.
    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "2"},
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout.splitlines()[-1])


def write_lines(path, num_records):
  rng = random.Random(0)
  words = [f"w{rng.randrange(10**6)}" for _ in range(3000)]
  texts = [" ".join(rng.choices(words, k=120)) for _ in range(500)]
  with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as f:
    for i in range(num_records):
      f.write(json.dumps({"id": i, "text": texts[i % 500]}) + "\n")


def write_long(path, num_bytes, *, ascii_only):
  """One line of a long text and one of a short one; returns the texts."""
  rng = random.Random(1)
  words = [f"w{rng.randrange(10**4)}" for _ in range(300)]
  part = " ".join(rng.choices(words, k=300)) + ', "é" 中文 🙂 <eos>\n'
  piece = json.dumps(part, ensure_ascii=ascii_only)[1:-1].encode()
  count = num_bytes // len(piece)
  open_file = gzip.open if path.suffix == ".gz" else open
  with open_file(path, "wb") as file:
    file.write(b'{"id": 1, "text": "')
    for _ in range(count):
      file.write(piece)
    file.write(b'", "z": [1, 2]}\n{"text": "short"}\n')
  return part, count


@pytest.mark.parametrize(
  ("suffix", "options"),
  [
    ("jsonl", {"shuffle": 3, "partitions": 2}),
    ("jsonl.gz", {"pack_to_seq_len": 1000}),
  ],
)
def test_memory_does_not_grow_with_the_input(
  tmp_path, bpe_folder, suffix, options
):
  most = {}
  for num_records in (4_000, 28_000):
    source = tmp_path / f"{num_records}.{suffix}"
    write_lines(source, num_records)
    records, _, most[num_records], _ = run(source, bpe_folder, **options)
    assert records == num_records
  assert most[28_000] - most[4_000] < 40 << 20


@pytest.mark.parametrize(
  ("name", "ascii_only"),
  [("x.jsonl", False), ("x.jsonl", True), ("x.jsonl.gz", False)],
)
def test_memory_does_not_grow_with_a_line(
  tmp_path, bpe, bpe_folder, name, ascii_only
):
  source = tmp_path / name
  write_long(source, 1_000_000, ascii_only=ascii_only)
  _, _, before, _ = run(source, bpe_folder)
  part, count = write_long(source, 30_000_000, ascii_only=ascii_only)
  records, _, held, _ = run(source, bpe_folder, limit=before + (200 << 20))
  assert records == 2
  # As a string alone it would be four bytes a character.
  assert held - before < 60 << 20
  found = np.fromfile(tmp_path / "x_text_document.bin", np.uint16)
  encoder = make_encoder(bpe, sample=[], backend="gigatoken")
  (eod,) = bpe("<eos>", add_special_tokens=False)["input_ids"]
  short = [*encoder.encode(["short"]).ids, eod]
  assert found[-len(short) - 1 :].tolist() == [eod, *short]
  # Parts end with a line end: each is encoded by itself as in the whole.
  whole = encoder.encode([part * 3]).ids
  each = encoder.encode([part]).ids
  assert whole.tolist() == each.tolist() * 3
  assert np.array_equal(found[: -len(short) - 1], np.tile(each, count))


def test_a_line_that_cannot_be_cut_is_an_error_or_left_out(
  tmp_path, bpe_folder
):
  source = tmp_path / "x.jsonl"
  with source.open("w") as file:
    file.write('{"text": "first"}\n{"text": "')
    for _ in range(20):
      file.write("a" * 1_000_000)
    file.write('"}\n{"text": "last"}\n')
  _, bad, held, _ = run(source, bpe_folder, on_bad_record="skip")
  assert bad == 1
  assert held < 600 << 20
  with pytest.raises(AssertionError) as caught:
    run(source, bpe_folder)
  said = str(caught.value)
  assert "record 2 (line 2, at byte offset 18) has a text without a pl" in said
  assert "aaaa" not in said


@large
@pytest.mark.parametrize("ascii_only", [False, True])
def test_one_line_of_500_megabytes(tmp_path, bpe_folder, ascii_only):
  source = tmp_path / "x.jsonl"
  write_long(source, 500_000_000, ascii_only=ascii_only)
  records, _, held, worker = run(source, bpe_folder, small=0)
  assert records == 2
  assert held + 2 * worker < GIGABYTE


@large
def test_three_gigabytes_of_lines(tmp_path, bpe_folder):
  source = tmp_path / "x.jsonl"
  write_lines(source, 3_400_000)
  assert source.stat().st_size > 3 * GIGABYTE
  records, _, held, worker = run(source, bpe_folder, small=0)
  assert records == 3_400_000
  assert held + 2 * worker < GIGABYTE
