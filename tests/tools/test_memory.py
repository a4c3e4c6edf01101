import gzip
import json
import random
import subprocess
import sys

import pytest

from hpgrain.tools import fast_backend

# Prepares a file, then says what memory it took at most, in MB.
_RUN = """
import resource, sys
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools.corpus import prepare_corpus
source, out, tokenizer, shuffle, pack = sys.argv[1:]
manifest = prepare_corpus(
  source, output_prefix=out, tokenizer=load_tokenizer(tokenizer),
  shuffle=int(shuffle) if shuffle else None,
  pack_to_seq_len=int(pack) if pack else None,
  partitions=2, workers=2, log_interval=0)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(manifest.records, usage.ru_maxrss // 1000)
"""


def write(path, num_records):
  rng = random.Random(0)
  words = [f"w{rng.randrange(10**6)}" for _ in range(3000)]
  texts = [" ".join(rng.choices(words, k=120)) for _ in range(500)]
  with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as f:
    for i in range(num_records):
      f.write(json.dumps({"id": i, "text": texts[i % 500]}) + "\n")


@pytest.mark.skipif(
  fast_backend.version() is None, reason="too slow without gigatoken"
)
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
@pytest.mark.parametrize(("shuffle", "pack"), [("", "1000"), ("3", "")])
def test_memory_does_not_grow_with_the_input(
  tmp_path, bpe_folder, suffix, shuffle, pack
):
  most = {}
  # 4 MB, and 28 MB: less than what starts worker processes.
  for num_records in (4_000, 28_000):
    source = tmp_path / f"{num_records}.{suffix}"
    write(source, num_records)
    done = subprocess.run(
      [
        *(sys.executable, "-c", _RUN),
        *(source, tmp_path / f"{num_records}", bpe_folder, shuffle, pack),
      ],
      capture_output=True,
      text=True,
      check=True,
    )
    records, most[num_records] = map(int, done.stdout.split())
    assert records == num_records
  assert most[28_000] - most[4_000] < 40
