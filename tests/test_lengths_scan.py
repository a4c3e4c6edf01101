"""hpgrain/lengths_scan.py: shared, killed and hindered scans."""

import collections
import contextlib
import errno
import logging
import os
import pty
import random
import signal
import tempfile
import termios
import time
from pathlib import Path

import pytest
from index_cache_worker import Intruder, finish, names, warned
from measured_worker import (
  CHUNKS,
  FEW,
  Numbers,
  Spread,
  log_of,
  no_fsync,
  small,
  start,
  told,
)
from test_index_cache_folder import in_namespace

from hpgrain import lengths_scan
from hpgrain.index_cache import IndexCache
from hpgrain.measured import MeasuredRecords

TABLE = ["measured_lengths", "measured_sizes"]
PAIRS = [f"kept_{name}" for name in ("ids", "labels", "weights") for _ in "ab"]


def whole(chunks):
  """What the small source is, measured in memory."""
  transform = Spread((1, 0, 3), (3, 1, 2), weighted=True)
  return told(
    MeasuredRecords(Numbers(8 * chunks - 3), transform, chunk_records=1000)
  )


@pytest.fixture(scope="module")
def expected():
  return whole(CHUNKS)


def kinds(folder):
  return [name.split("-")[0] for name in names(folder)]


def test_a_scan_that_is_killed_at_random_goes_on(tmp_path, expected):
  rng = random.Random(0)
  kills = 0
  for number in range(4):
    begun = len(log_of(tmp_path)) + rng.randint(1, 2)
    process = start("slow", tmp_path, number)
    process.stdout.readline()
    process.stdin.write("\n")
    process.stdin.flush()
    while len(log_of(tmp_path)) < begun and process.poll() is None:
      time.sleep(0.001)
    time.sleep(rng.uniform(0.0, 0.01))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kills += process.returncode == -signal.SIGKILL
  assert kills
  assert finish(start("slow", tmp_path, 9)) == expected
  log = log_of(tmp_path)
  # Each chunk once, and once more where it was in work.
  counts = collections.Counter(chunk for _, chunk in log)
  assert sorted(counts) == list(range(0, 8 * CHUNKS, 8))
  assert len(log) - CHUNKS <= kills
  assert kinds(tmp_path / "cache") == PAIRS + TABLE


def test_two_processes_share_a_scan(tmp_path, expected):
  both = [start("slow", tmp_path, number, 2) for number in (1, 2)]
  for process in both:
    process.stdout.readline()
  for process in both:
    process.stdin.write("\n")
    process.stdin.flush()
  assert [finish(process) for process in both] == [expected] * 2
  log = log_of(tmp_path)
  assert {number for number, _ in log} == {1, 2}
  assert {chunk for _, chunk in log} == set(range(0, 8 * CHUNKS, 8))
  # By chance the two may be at one chunk at a time.
  assert len(log) < 1.7 * CHUNKS
  small(tmp_path / "alone", keep=True).measure()
  shared, alone = tmp_path / "cache", tmp_path / "alone"
  assert kinds(shared) == PAIRS + TABLE
  assert names(shared) == names(alone)
  for name in names(shared):
    assert (shared / name).read_bytes() == (alone / name).read_bytes()


@pytest.mark.parametrize("keep", ["keep", "lengths"])
def test_killed_at_any_call_another_goes_on(tmp_path, keep):
  expected = whole(FEW)
  answers = finish(start("killed_everywhere", tmp_path, keep))
  assert len(answers) > 5 * FEW
  partly = 0
  for answer in answers:
    assert answer["told"] == expected
    assert answer["read"] == [5, 5, 0, 0, 0]
    assert answer["warnings"] == []
    if answer["all"]:
      assert answer["calls"] == 0
    else:
      assert answer["calls"] == FEW - answer["done"]
      partly += 0 < answer["done"] < FEW
    kept = PAIRS if keep == "keep" else []
    left = [name for name in answer["then"] if not name.endswith(".partial")]
    assert [name.split("-")[0] for name in left] == kept + TABLE
  assert partly


@pytest.mark.parametrize(
  "number",
  [errno.ENOSPC, errno.EACCES],
  ids=lambda number: errno.errorcode[number],
)
@pytest.mark.parametrize("keep", [False, True])
def test_any_call_may_fail(tmp_path, monkeypatch, caplog, number, *, keep):
  monkeypatch.setattr(os, "fsync", no_fsync)
  expected = whole(FEW)

  def failing(name, real, *args, **kwargs):
    raise OSError(number, os.strerror(number))

  # Those whose failure was said.
  called = set()
  # Where tokens are kept there are many, and of few kinds.
  for n in range(1, 1000, 4 if keep else 1):
    folder = tmp_path / str(n)
    caplog.clear()
    with Intruder(n, failing) as intruder:
      measured = small(folder, keep=keep, chunks=FEW)
      answer = told(measured)
    if intruder.called is None:
      break
    assert answer == expected
    assert measured.read([5, 0]).input_ids.tolist() == [5, 5, 0, 0, 0]
    said = warned(caplog)
    assert len(said) <= 1
    for text in said:
      called.add(intruder.called)
      assert text.startswith(f"The index cache {folder} cannot be used (")
      assert os.strerror(number) in text
    if not said:
      # It was no harm: all is kept.
      again = small(folder, keep=keep, chunks=FEW)
      assert told(again) == expected
      assert again.transform.seen == []
  assert {"mkdir", "open", "write", "fsync"} <= called
  assert n > 10 * FEW


@pytest.mark.parametrize("keep", ["keep", "lengths"])
def test_a_full_disk_is_no_error_of_the_run(tmp_path, expected, keep):
  folder = tmp_path / "cache"
  folder.mkdir()
  mount = in_namespace(f"mount -t tmpfs -o size=16k none '{folder}'")
  answer = finish(start("hindered", folder, keep, before=mount))
  assert answer["told"] == expected
  assert answer["read"] == [5, 5, 0, 0, 0]
  (said,) = answer["warnings"]
  assert said.startswith(
    f"The index cache {folder} cannot be used (No space left on device)."
  )
  # Some chunks found room, the table none.
  assert {name.split("-")[0] for name in answer["left"]} == {"measured_chunk"}


def test_a_limit_on_files_is_no_error_of_the_run(tmp_path, expected):
  answer = finish(start("limited", tmp_path / "cache", "lengths"))
  assert answer["told"] == expected
  (said,) = answer["warnings"]
  assert "cannot be used (File too large)." in said


@pytest.mark.parametrize("keep", ["keep", "lengths"])
def test_without_the_right_to_write_it_is_measured_in_memory(expected, keep):
  with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    Path(folder).chmod(0o555)
    answer = finish(start("read_only", folder, keep))
    assert answer["told"] == expected
    assert answer["read"] == [5, 5, 0, 0, 0]
    assert answer["left"] == []
    (said,) = answer["warnings"]
    assert "cannot be used (Permission denied: " in said


def test_a_table_is_read_without_the_right_to_write(expected):
  with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    small(folder, keep=True).measure()
    Path(folder).chmod(0o555)
    answer = finish(start("read_only", folder, "keep"))
    assert answer["told"] == expected
    assert answer["read"] == [5, 5, 0, 0, 0]
    assert answer["calls"] == 0
    assert answer["warnings"] == []


def stopped_scan(folder):
  """Chunks, of which none was made to a table yet."""
  scan = lengths_scan.LengthsScan(
    Numbers(10),
    Spread((2,)),
    key={},
    cache=IndexCache(folder),
    chunk_records=4,
    keep_tokens=False,
    one_example_each=False,
    is_done=lambda: False,
  )
  scan.run()
  return scan


@pytest.mark.parametrize("damage", ["end", "middle", "empty", "foreign"])
def test_a_damaged_chunk_is_made_anew(tmp_path, caplog, damage):
  scan = stopped_scan(tmp_path)
  path = scan.path(1)
  whole = path.read_bytes()
  path.write_bytes(
    {
      "end": whole[:-1],
      "middle": whole[:1] + b"\xff" + whole[2:],
      "empty": b"",
      "foreign": bytes(100),
    }[damage]
  )
  lengths = [chunk.lengths.tolist() for chunk in scan.chunks()]
  assert lengths == [[2] * 8, [2] * 8, [2] * 4]
  (said,) = warned(caplog)
  assert said.startswith(f"{path} is damaged or foreign (it")
  assert path.read_bytes() == whole


def test_a_damaged_table_is_measured_again(tmp_path, expected, caplog):
  small(tmp_path).measure()
  (path,) = tmp_path.glob("measured_lengths-*")
  whole = path.read_bytes()
  path.write_bytes(whole[:-1])
  assert told(small(tmp_path)) == expected
  assert path.read_bytes() == whole
  assert "is damaged or foreign" in warned(caplog)[0]


def test_what_a_killed_process_left_is_removed_at_the_next_start(tmp_path):
  small(tmp_path).measure()
  scan = None

  class Kept(lengths_scan.LengthsScan):
    def remove(self):
      nonlocal scan
      scan = self

  for path in tmp_path.iterdir():
    path.unlink()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr("hpgrain.measured.LengthsScan", Kept)
    small(tmp_path).measure()
  assert len(names(tmp_path)) == CHUNKS + 2
  # It was at removing the first of them.
  scan.path(0).unlink()
  measured = small(tmp_path)
  measured.measure()
  assert kinds(tmp_path) == TABLE
  assert measured.transform.seen == []


def test_a_scan_ends_where_another_process_was_faster(tmp_path, expected):
  """Chunk by chunk it looks; here it has one left when the other is done."""
  seen = []

  def other(records):
    seen.append(records[0])
    if len(seen) == 3:
      small(tmp_path).measure()

  measured = small(tmp_path, log=other)
  assert told(measured) == expected
  assert len(seen) == 3
  # The third chunk was published after the others were removed.
  assert kinds(tmp_path) in (TABLE, ["measured_chunk", *TABLE])


def test_batches_follow_the_length_of_records():
  """Of long records fewer are read at a time, and of short ones more."""
  sizes = []
  for length, n in ((1, 2500), (1000, 300), (300_000, 40)):
    transform = Spread(sizes=(length,), log=lambda r: sizes.append(len(r)))
    MeasuredRecords(Numbers(n), transform).measure()
  # At most four times as many as before, and 1,024.
  assert sizes[:4] == [32, 128, 512, 1024]
  assert sum(sizes[:5]) == 2500
  assert sizes[5:8] == [32, 128, 140]
  # One of 300,000 positions at a time, as soon as they are known.
  assert sizes[8:] == [32] + [1] * 8


def test_memory_stays_small(tmp_path):
  """Of 10 million records it is ten times as much: below 200 MB."""
  answer = finish(start("peak", tmp_path, 1_000_000))
  assert answer["counters"]["records"] == 1_000_000
  assert answer["grown"] < 20e6


def test_progress_is_shown_on_a_terminal_alone(tmp_path, monkeypatch, capfd):
  monkeypatch.setattr(lengths_scan, "_SILENT_SECONDS", 0)
  small(tmp_path / "quiet").measure()
  assert capfd.readouterr() == ("", "")
  main, other = pty.openpty()
  termios.tcsetwinsize(other, (24, 100))
  with os.fdopen(other, "w") as terminal, monkeypatch.context() as patch:
    patch.setattr("sys.stderr", terminal)
    small(tmp_path / "shown", seconds=0.02).measure()
  parts = []
  with contextlib.suppress(OSError):
    while part := os.read(main, 1 << 16):
      parts.append(part)
  shown = b"".join(parts).decode()
  os.close(main)
  assert "Measuring numbers: 100%" in shown
  assert "93.0/93.0" in shown


def test_logs_say_nothing_of_texts(tmp_path, caplog):
  caplog.set_level(logging.DEBUG)
  small(tmp_path).measure()
  said = [r.getMessage() for r in caplog.records if r.name.startswith("hpg")]
  assert [text.split(" ")[1] for text in said] == [
    "measured_sizes:",
    "measured_lengths:",
  ]
