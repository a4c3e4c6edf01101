"""Ends a preparation at every write, fsync, rename and removal, one by one.

Run as `python crash_driver.py FOLDER TOKENIZER MODE`, with MODE "kill" (the
process dies in the middle of a write or before another call) or "full" (the
call fails as on a full disk). Prints how many places there were.

Each run is a fork of this process, so that nothing is loaded twice.
"""

import errno
import io
import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from hpgrain.manifest import read_manifest
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools.corpus import prepare
from hpgrain.tools.options import Options

TEXTS = ["one two", "", "three", "four five six", "seven", "eight nine"] * 3
_COUNTED = ("fsync", "rename", "replace", "unlink", "remove", "rmdir", "link")


class Fault:
  """Counts calls that change the disk, and makes the n-th one fail."""

  def __init__(self, place, mode):
    self.place, self.mode, self.count = place, mode, 0

  def install(self):
    """Puts itself in the way of this process's calls."""
    fault = self

    class File(io.FileIO):
      def write(self, data):
        if fault.due():
          super().write(bytes(data)[: len(data) // 2])
          fault.strike()
        return super().write(data)

    def opened(file, mode="r", buffering=-1, *args, opener=None, **kwargs):
      if not set(mode) & set("wax+"):
        return real_open(file, mode, buffering, *args, opener=opener, **kwargs)
      text = "b" not in mode
      raw = File(file, mode.replace("b", "").replace("t", ""), opener=opener)
      size = buffering if buffering > 1 else 8192
      buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(
        raw, size
      )
      return io.TextIOWrapper(buffered, *args, **kwargs) if text else buffered

    real_open = io.open
    io.open = opened
    for name in _COUNTED:
      self.wrap(name)

  def wrap(self, name):
    """Puts itself before a function of `os`."""
    real = (lambda fd: None) if name == "fsync" else getattr(os, name)

    def counted(*args, **kwargs):
      # A full disk refuses new bytes; what was there can still be removed.
      if (name == "fsync" or self.mode == "kill") and self.due():
        self.strike()
      return real(*args, **kwargs)

    setattr(os, name, counted)

  def due(self):
    """Counts a call; whether it is the one."""
    self.count += 1
    return self.count == self.place

  def strike(self):
    """Fails the call, or ends the process."""
    if self.mode == "kill":
      os.kill(os.getpid(), signal.SIGKILL)
    raise OSError(errno.ENOSPC, "No space left on device")


def attempt(options, tokenizer, fault):
  """Runs in a fork; returns ("died", None), or what it says of itself."""
  read, write = os.pipe()
  pid = os.fork()
  if not pid:
    try:
      if fault is not None:
        fault.install()
      report = prepare(options, tokenizer=tokenizer)
      said = ["done", [report.num_units, report.num_done, report.num_reused]]
    except OSError as error:
      said = ["failed", str(error)]
    except BaseException:
      said = ["broken", traceback.format_exc()]
    os.write(write, json.dumps(said).encode())
    os._exit(0)
  os.close(write)
  with os.fdopen(read) as file:
    text = file.read()
  os.waitpid(pid, 0)
  return json.loads(text) if text else ["died", None]


def outputs(folder):
  """The files under final names, and their bytes."""
  return {
    path.name: path.read_bytes()
    for path in folder.iterdir()
    if path.is_file() and path.suffix not in (".tmp", ".partial")
  }


def check_no_half(folder, expected):
  """What looks whole must be whole."""
  found = outputs(folder)
  for name, data in found.items():
    assert data == expected[name], f"{name} is not what it must be"
  for key in ("text", "more"):
    prefix = folder / f"x_{key}_document"
    if f"{prefix.name}.idx" in found:
      assert f"{prefix.name}.bin" in found
    if f"{prefix.name}.manifest.json" in found:
      assert read_manifest(prefix) is not None


def main(folder, tokenizer_folder, mode):
  """Goes through all places; returns their number."""
  tokenizer = load_tokenizer(tokenizer_folder)
  source = folder / "in.jsonl"
  source.write_text(
    "".join(
      json.dumps({"text": text, "more": text[::-1]}) + "\n" for text in TEXTS
    )
  )

  def options(name):
    return Options(
      source,
      folder / name / "x",
      json_keys=("text", "more"),
      partitions=1,
      pack_to_seq_len=3,
      unit_bytes=300,
      log_interval=0,
      keep_partition_files=True,
      tokenizer_backend="huggingface",
    )

  assert attempt(options("whole"), tokenizer, None)[0] == "done"
  expected = outputs(folder / "whole")
  assert len(expected) == 7
  place = 0
  while True:
    place += 1
    out = folder / f"{place}"
    said, what = attempt(options(out.name), tokenizer, Fault(place, mode))
    assert said in ("done", "died" if mode == "kill" else "failed"), what
    if said == "done":
      assert outputs(out) == expected
      return place - 1
    if not out.exists():
      continue
    check_no_half(out, expected)
    parts = out / "x_text_more_document.parts"
    units = len(list(parts.glob("*.unit")))
    whole = outputs(out) == expected
    said, what = attempt(options(out.name), tokenizer, None)
    if said == "failed" and whole and not list(out.glob("*.parts/*")):
      # It was over: the last thing was to remove the empty folder.
      assert "The output exists" in what
    else:
      assert said == "done", f"place {place}: {what}"
      total, done, reused = what
      # Nothing is done twice; when all is published, nothing at all.
      assert done == (0 if whole else total - units), (place, what, units)
      assert done + reused == total
    assert outputs(out) == expected, f"place {place}"
    assert sorted(path.name for path in out.iterdir()) == sorted(expected)


if __name__ == "__main__":
  tempfile.tempdir = sys.argv[1]
  print(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
