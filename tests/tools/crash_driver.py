"""Ends a preparation at everything it does to the disk, one by one.

Run as `python crash_driver.py FOLDER TOKENIZER MODE LAYOUT`, with MODE "kill"
(the process dies in the middle of a write, or before another call) or "full"
(the call fails as on a full disk), and LAYOUT a name of `LAYOUTS`. Prints how
many places there were, by their kind, as JSON.

Writes are those of files that Python opens; renames, removals and new names
are seen through its audit events, so none is missed whoever asks for it. That
no file is written behind the back of all this is checked, too.

Each run is a fork of this process, so that nothing is loaded twice.
"""

import collections
import errno
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

from hpgrain.manifest import read_manifest
from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools import offline_preparation
from hpgrain.tools.corpus import prepare
from hpgrain.tools.options import Options

TEXTS = ["one two", "", "three", "four five six", "seven", "eight nine"] * 3
LAYOUTS = {
  "packed": {
    "json_keys": ("text", "more"),
    "pack_to_seq_len": 3,
    "keep_partition_files": True,
  },
  "dealt": {
    "partitions": 2,
    "workers": 2,
    "pack_to_seq_len": 5,
    "pack_tail": "carry",
    "shuffle": 3,
  },
  # Over a pair of another input that is there.
  "replaced": {"json_keys": ("text", "more"), "overwrite": True},
  "in_another_folder": {"work_dir": "work", "keep_sequential_samples": True},
}
# Names that appear, change or go; not those of unnamed files.
_EVENTS = {
  "os.rename": "rename",
  "os.remove": "remove",
  "os.rmdir": "rmdir",
  "os.mkdir": "mkdir",
  "os.link": "link",
  "os.truncate": "truncate",
}
# Of these a full disk can refuse.
_GROWING = ("write", "fsync", "create", "mkdir", "link")
_WRITING = os.O_WRONLY | os.O_RDWR


class Fault:
  """Counts what changes the disk, and makes the n-th of it fail."""

  def __init__(self, place, mode, folder):
    self.place, self.mode, self.folder = place, mode, os.fspath(folder)
    self.count, self.kinds = 0, collections.Counter()
    self.unseen = set()
    self._ours = False

  def install(self):
    """Puts itself in the way of this process's calls."""
    fault = self

    class File(io.FileIO):
      def write(self, data):
        if fault.due("write"):
          # Half of it is there.
          super().write(bytes(data)[: len(data) // 2])
          fault.strike()
        return super().write(data)

    def opened(file, mode="r", buffering=-1, *args, opener=None, **kwargs):
      if not set(mode) & set("wax+"):
        return real_open(file, mode, buffering, *args, opener=opener, **kwargs)
      text = "b" not in mode
      fault._ours = True
      try:
        raw = File(file, mode.replace("b", "").replace("t", ""), opener=opener)
      finally:
        fault._ours = False
      size = buffering if buffering > 1 else 8192
      buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(
        raw, size
      )
      return io.TextIOWrapper(buffered, *args, **kwargs) if text else buffered

    real_open = io.open
    io.open = opened

    def fsync(fd):
      if fault.due("fsync"):
        fault.strike()

    os.fsync = fsync
    sys.addaudithook(self._see)

  def due(self, kind):
    """Counts a place; whether it is the one."""
    if self.mode == "full" and kind not in _GROWING:
      return False
    self.kinds[kind] += 1
    self.count += 1
    return self.count == self.place

  def strike(self):
    """Fails the call, or ends the process."""
    if self.mode == "kill":
      os.kill(os.getpid(), signal.SIGKILL)
    raise OSError(errno.ENOSPC, "No space left on device")

  def _see(self, event, arguments):
    if event == "open":
      path, _, flags = arguments
      writes = isinstance(flags, int) and flags & _WRITING
      if not writes or not str(path).startswith(self.folder):
        return
      if not self._ours:
        self.unseen.add(Path(path).name)
      if flags & os.O_CREAT and self.mode == "full" and self.due("create"):
        self.strike()
    elif event in _EVENTS and str(arguments[0]).startswith(self.folder):
      if self.due(_EVENTS[event]):
        self.strike()


def attempt(options, tokenizer, fault):
  """Runs in a fork; returns ["died", None, None], or what it says of itself."""
  read, write = os.pipe()
  pid = os.fork()
  if not pid:
    try:
      if fault is not None:
        fault.install()
      report = prepare(options, tokenizer=tokenizer)
      said = ["done", [report.num_units, report.num_done, report.num_reused]]
    except OSError as error:
      said = ["failed", offline_preparation.describe_failure(error)]
    except BaseException:
      said = ["broken", traceback.format_exc()]
    seen = [fault.kinds, sorted(fault.unseen)] if fault is not None else None
    os.write(write, json.dumps([*said, seen]).encode())
    os._exit(0)
  os.close(write)
  with os.fdopen(read) as file:
    text = file.read()
  os.waitpid(pid, 0)
  return json.loads(text) if text else ["died", None, None]


def outputs(folder):
  """The files under final names, and their bytes."""
  return {
    path.name: path.read_bytes()
    for path in folder.iterdir()
    if path.is_file() and path.suffix not in (".tmp", ".partial")
  }


def check_no_half(folder, *allowed):
  """What looks whole must be whole, of the new output or of the old one."""
  found = outputs(folder)
  for name, data in found.items():
    assert data in [files.get(name) for files in allowed], f"{name} is half"
  for name in found:
    stem = name.removesuffix(".idx").removesuffix(".manifest.json")
    if stem == name or not name.endswith((".idx", ".json")):
      continue
    # With its own pair, not with another's.
    index, tokens = f"{stem}.idx", f"{stem}.bin"
    if index in found:
      assert any(
        (found[index], found.get(tokens))
        == (files.get(index), files.get(tokens))
        for files in allowed
      ), f"{index} lies beside another .bin"
    if name.endswith(".json"):
      assert read_manifest(folder / stem) is not None


def write_input(path, texts):
  """Records of two keys."""
  path.write_text(
    "".join(
      json.dumps({"text": text, "more": text[::-1]}) + "\n" for text in texts
    )
  )


class Job:
  """A layout's runs."""

  def __init__(self, folder, tokenizer, layout):
    self.folder, self.tokenizer = folder, tokenizer
    self.layout = dict(LAYOUTS[layout])
    self.source, self.old_source = folder / "in.jsonl", folder / "old.jsonl"
    write_input(self.source, TEXTS)
    write_input(self.old_source, TEXTS[3:9])

  def options(self, out, **more):
    """Of a run into a folder."""
    layout = self.layout | more
    if "work_dir" in layout:
      layout["work_dir"] = out.with_suffix(".work")
    return Options(
      more.get("path", self.source),
      out / "x",
      **{k: v for k, v in layout.items() if k != "path"},
      unit_bytes=300,
      log_interval=0,
      tokenizer_backend="huggingface",
    )

  def prepared(self, out, **more):
    """The outputs of a run that goes well."""
    said, what, _ = attempt(self.options(out, **more), self.tokenizer, None)
    assert said == "done", what
    return outputs(out)

  def go_through(self, mode):
    """Goes through all places; returns their kinds."""
    expected = self.prepared(self.folder / "whole")
    old = {}
    if self.layout.get("overwrite"):
      old = self.prepared(self.folder / "old", path=self.old_source)
    place = 0
    while True:
      place += 1
      out = self.folder / f"{place}"
      if old:
        shutil.copytree(self.folder / "old", out)
      options = self.options(out)
      fault = Fault(place, mode, self.folder)
      said, what, seen = attempt(options, self.tokenizer, fault)
      assert said in ("done", "died" if mode == "kill" else "failed"), what
      if said == "done":
        assert outputs(out) == expected
        return seen
      if said == "failed":
        assert "The disk is full" in what and "the same command" in what, what
      if out.exists():
        check_no_half(out, expected, old)
        self.check_rerun(place, out, expected)

  def check_rerun(self, place, out, expected):
    """The same again: equal bytes, and nothing is done twice."""
    options = self.options(out)
    parts = options.work_folder()
    units = len(list(parts.glob("*.unit"))) if parts.exists() else 0
    whole = outputs(out) == expected
    over = whole and not (parts.exists() and any(parts.iterdir()))
    said, what, _ = attempt(options, self.tokenizer, None)
    if over and not options.overwrite:
      # The last thing was to remove the empty folder.
      assert said == "failed" and "The output exists" in what, what
    else:
      assert said == "done", f"place {place}: {what}"
      total, done, reused = what
      # Nothing is done twice; when all is published, nothing at all.
      if not over:
        assert done == (0 if whole else total - units), (place, what, units)
      assert done + reused == total
    assert outputs(out) == expected, f"place {place}"
    assert sorted(path.name for path in out.iterdir()) == sorted(expected)
    assert not parts.exists()


def main(folder, tokenizer_folder, mode, layout):
  """Returns the kinds of places, and names that were written unseen."""
  warnings.simplefilter("ignore")
  tokenizer = load_tokenizer(tokenizer_folder)
  return Job(folder, tokenizer, layout).go_through(mode)


if __name__ == "__main__":
  tempfile.tempdir = sys.argv[1]
  print(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])))
