"""Processes that use an index cache, and are killed or hindered at it.

  python tests/index_cache_worker.py COMMAND FOLDER

prints a line of JSON at the end. The package's surface is not imported then:
its libraries start threads, and here processes are forked by the dozen.
"""

import fcntl
import importlib.util
import json
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np

if __name__ == "__main__":
  _package = types.ModuleType("hpgrain")
  _package.__path__ = importlib.util.find_spec(
    "hpgrain"
  ).submodule_search_locations
  sys.modules["hpgrain"] = _package

from hpgrain import index_cache, index_cache_file

# Several writes of the size below.
ARRAY = np.arange(10_000, dtype=np.int64)
CHUNK_BYTES = 1 << 15
KEY = {"corpus": "a", "seed": 1}
CROWD = tuple(f"kind{i}" for i in range(10))

# What a writer asks of the system.
_CALLS = (
  (os, "open"),
  (os, "mkdir"),
  (fcntl, "flock"),
  (os, "write"),
  (os, "fsync"),
  (os, "link"),
  (os, "replace"),
  (os, "unlink"),
)
_MOST_CALLS = 100


def entry(kind="documents", array=ARRAY):
  """What `get` asks for."""
  return index_cache_file.describe(
    kind, key=KEY, arrays={"a": (array.dtype, array.shape)}
  )


DOCUMENTS = entry().name


def get(folder, *, kind="documents", array=ARRAY, build=None):
  """Asks for an array, checks it, and returns the event."""
  cache = index_cache.IndexCache(folder)
  found = cache.get(
    kind,
    key=KEY,
    arrays={"a": (array.dtype, array.shape)},
    build=build or (lambda: {"a": array}),
  )
  assert (found["a"] == array).all()
  (event,) = cache.events
  return event


def names(folder):
  """What lies in a folder; nothing where there is none."""
  path = Path(folder)
  return sorted(p.name for p in path.iterdir()) if path.exists() else []


def warned(caplog):
  """What the package has said from WARNING up."""
  return [
    record.getMessage()
    for record in caplog.records
    if record.name.startswith("hpgrain") and record.levelno >= logging.WARNING
  ]


def start(command, folder, *before):
  """Starts a process with one of the commands below."""
  return subprocess.Popen(
    [*before, sys.executable, __file__, command, str(folder)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )


def finish(process, line="\n"):
  """Lets a process go on to its end; returns what it told."""
  out, _ = process.communicate(line, timeout=100)
  assert process.returncode == 0
  return json.loads(out.splitlines()[-1])


class Warnings(logging.Handler):
  """Keeps what the package says from WARNING up."""

  def __init__(self):
    super().__init__(logging.WARNING)
    self.texts = []

  def __enter__(self):
    logging.getLogger("hpgrain").addHandler(self)
    return self.texts

  def __exit__(self, *exc):
    logging.getLogger("hpgrain").removeHandler(self)

  def emit(self, record):
    self.texts.append(record.getMessage())


class Intruder:
  """Lets `act` stand in for the n-th call of the system, counted from 1."""

  def __init__(self, n, act):
    self._left, self._act = n, act
    self._real = [getattr(module, name) for module, name in _CALLS]
    self.called = None

  def __enter__(self):
    for (module, name), real in zip(_CALLS, self._real):
      setattr(module, name, self._wrapped(name, real))
    return self

  def __exit__(self, *exc):
    for (module, name), real in zip(_CALLS, self._real):
      setattr(module, name, real)

  def _wrapped(self, name, real):
    def call(*args, **kwargs):
      self._left -= 1
      if self._left:
        return real(*args, **kwargs)
      self.called = name
      return self._act(name, real, *args, **kwargs)

    return call


def _die_before(name, real, *args, **kwargs):
  del name, real, args, kwargs
  os.kill(os.getpid(), signal.SIGKILL)


def _die_after(name, real, *args, **kwargs):
  if name == "write":
    fd, data = args
    args = fd, data[: len(data) // 2]
  try:
    real(*args, **kwargs)
  finally:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_everywhere(folder):
  """Kills writers before or after each call; tells what they left behind.

  Each once in a folder that is not there, and once in one whose file is
  damaged.
  """
  index_cache_file._CHUNK_BYTES = CHUNK_BYTES
  told = []
  for die in (_die_before, _die_after):
    for damaged in (False, True):
      for n in range(1, _MOST_CALLS):
        place = Path(folder) / f"{die.__name__}-{damaged}-{n}"
        if damaged:
          place.mkdir(parents=True)
          (place / entry().name).touch()
        called = _killed_at(n, die, place)
        if not called:
          break
        left = names(place)
        with Warnings() as texts:
          # The second one writes in any case, and so tidies up.
          built = [
            get(place, kind=kind).built for kind in ("documents", "samples")
          ]
        told.append(
          {
            "when": die.__name__,
            "damaged": damaged,
            "call": called,
            "left": left,
            "built": built,
            "then": names(place),
            "warnings": len(texts),
          }
        )
  return told


def _killed_at(n, die, place):
  """Kills a writer at its n-th call; returns which, or nothing if it ended."""
  out, into = os.pipe()
  say = os.write
  pid = os.fork()
  if not pid:

    def act(name, *args, **kwargs):
      say(into, name.encode())
      die(name, *args, **kwargs)

    with Intruder(n, act), Warnings():
      get(place)
    os._exit(0)
  os.close(into)
  called = os.read(out, 100).decode()
  os.close(out)
  status = os.waitpid(pid, 0)[1]
  assert status == (signal.SIGKILL if called else 0)
  return called


def killed_before_link(folder):
  """Is killed as it is about to link."""
  index_cache_file._CHUNK_BYTES = CHUNK_BYTES
  os.link = _die_before
  get(folder)


def full(folder):
  """Asks for more than the disk holds, then for less."""
  large = np.zeros(1 << 17, np.int64)
  with Warnings() as texts:
    events = [
      get(folder, kind="large", array=large),
      get(folder, kind="larger", array=large),
      get(folder, kind="small", array=np.arange(5)),
    ]
  return _told(events, texts, folder)


def limited(folder):
  """The same where no file may be that large."""
  resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
  return full(folder)


def read_only(folder):
  """Asks, with no right to write, for what is there and what is not."""
  if not os.geteuid():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
  return missing(folder)


def missing(folder):
  """Asks for what is there, and for two that are not."""
  with Warnings() as texts:
    events = [get(folder)]
    early = list(texts)
    events += [get(folder, kind="samples"), get(folder, kind="shuffle")]
  return {**_told(events, texts, folder), "early": early}


def together(folder):
  """Builds when it is told to on stdin."""
  # However small: the mappings say whose file it was.
  index_cache_file._MAPPED_BYTES = 0

  def build():
    print("building", flush=True)
    sys.stdin.readline()
    return {"a": ARRAY}

  cache = index_cache.IndexCache(folder)
  found = cache.get(
    "documents",
    key=KEY,
    arrays={"a": (ARRAY.dtype, ARRAY.shape)},
    build=build,
  )
  assert (found["a"] == ARRAY).all()
  maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
  inodes = {int(line.split()[4]) for line in maps if ".hpgrain" in line}
  return {"built": cache.events[0].built, "inodes": sorted(inodes)}


def crowd(folder):
  """Eight processes ask for ten entries each, in orders of their own."""
  pids = []
  for seed in range(8):
    pid = os.fork()
    if not pid:
      kinds = list(CROWD)
      random.Random(seed).shuffle(kinds)
      with Warnings() as texts:
        mapped = [get(folder, kind=kind).path is not None for kind in kinds]
      os._exit(not (all(mapped) and all("damaged" in text for text in texts)))
    pids.append(pid)
  return [os.waitpid(pid, 0)[1] for pid in pids]


def waiting(folder):
  """Stands still in the middle of writing until a line comes."""
  index_cache_file._CHUNK_BYTES = CHUNK_BYTES
  write, left = os.write, [3]

  def slow(fd, data):
    left[0] -= 1
    if not left[0]:
      print("writing", flush=True)
      sys.stdin.readline()
    return write(fd, data)

  os.write = slow
  return _told([get(folder)], [], folder)


def _told(events, texts, folder):
  return {
    "mapped": [event.path is not None for event in events],
    "built": [event.built for event in events],
    "warnings": texts,
    "left": names(folder),
  }


if __name__ == "__main__":
  print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
