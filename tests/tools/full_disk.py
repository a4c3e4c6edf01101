"""Fills a real disk with a preparation, makes it larger, and lets it go on.

Run as `unshare -rm python full_disk.py FOLDER TOKENIZER`: the disk is a small
tmpfs of a mount namespace of its own. Prints, for each size in kilobytes, how
many units were finished when it was full.
"""

import functools
import json
import subprocess
import sys
import warnings
from pathlib import Path

from random_kills import Run, finals, units, work

from hpgrain.tokenizer import import_transformers
from hpgrain.tools import offline_preparation
from hpgrain.tools.options import Options


def mount(disk, options):
  """Mounts a tmpfs, or changes it."""
  subprocess.run(["mount", "-t", "tmpfs", "-o", options, "x", disk], check=True)


def main(folder, tokenizer):
  """Returns the finished units by size."""
  warnings.simplefilter("ignore")
  offline_preparation.Options = functools.partial(Options, unit_bytes=1 << 16)
  import_transformers().AutoTokenizer.from_pretrained(tokenizer)
  source = folder / "in.jsonl"
  with source.open("w") as file:
    for i in range(4000):
      json.dump({"text": "a b c " * (i % 50)}, file)
      file.write("\n")

  def run(out):
    return Run(
      folder,
      [
        f"--dataset-name-or-path={source}",
        f"--output-prefix={out}/x",
        f"--tokenizer-name-or-path={tokenizer}",
        "--tokenizer-backend=huggingface",
        "--pack-to-seq-len=99",
        "--log-interval=0",
      ],
    ).wait()

  code, said = run(folder / "whole")
  assert code == 0, said
  expected = finals(folder / "whole")
  whole = sum(map(len, expected.values())) >> 10
  disk = folder / "disk"
  disk.mkdir()
  found = {}
  # Full in the first unit, in a later one, as they are merged, at the end.
  for share in (0.1, 0.6, 1.3, 1.9):
    size = int(whole * share)
    mount(disk, f"size={size}k")
    code, said = run(disk)
    assert code == 1, said
    assert "No space left on device" in said and "The disk is full" in said
    assert not finals(disk), "nothing has a final name"
    done = units(disk / "x_text_document.parts")
    found[size] = len(done)
    mount(disk, f"remount,size={8 * whole}k")
    code, said = run(disk)
    assert code == 0, said
    assert work(said)[2] == len(done), said
    assert finals(disk) == expected
    subprocess.run(["umount", disk], check=True)
  return found


if __name__ == "__main__":
  print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
