"""What every source of tables must do; each test calls these."""

import os
import pickle
import threading

import numpy as np
import pytest


def check_reading(records, expected):
  """The records are `expected`, in any order, by pickles and threads too."""
  assert len(records) == len(expected)
  assert records.read(np.array([], np.int64)) == []
  everything = np.arange(len(expected))
  assert records.read(everything) == expected
  rng = np.random.default_rng(0)
  for _ in range(5):
    asked = rng.integers(0, len(expected), 7)
    assert records.read(asked) == [expected[i] for i in asked]
  again = pickle.loads(pickle.dumps(records))
  assert again.read(everything[::-1]) == expected[::-1]
  assert again.identity == records.identity
  assert again.name == records.name
  wrong = []

  def work(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
      asked = rng.integers(0, len(expected), 5)
      if records.read(asked) != [expected[i] for i in asked]:
        wrong.append(asked)

  threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert wrong == []
  with pytest.raises(IndexError, match=f"has {len(expected)} records"):
    records.read([len(expected)])
  with pytest.raises(IndexError, match="got row -1"):
    records.read([-1])


def check_changes(open_again, path):
  """A file that is written again is refused, opened anew, and other data."""
  records = open_again()
  records.read([0])
  status = path.stat()
  os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
  with pytest.raises(ValueError, match="was written again since"):
    records.read([0])
  again = open_again()
  assert again.read([0]) == again.read([0])
  assert again.identity == records.identity
  assert again.cache_identity != records.cache_identity
  elsewhere = pickle.dumps(again)
  path.unlink()
  with pytest.raises(FileNotFoundError, match=path.name):
    pickle.loads(elsewhere)


def check_broken(open_again, path):
  """A file that was cut off, or is of another format, is refused."""
  whole = path.read_bytes()
  for data in (whole[: len(whole) // 2], b"", b"not of this format" * 10000):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"{path.name} cannot be read"):
      records = open_again()
      records.read(np.arange(len(records)))
