"""Writing pairs: the very bytes, and no pair at all when anything fails."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import xxhash
from corpora import write_pair

from hpgrain.sources import index_checks, partial_pair
from hpgrain.sources.indexed import (
  IndexedReader,
  IndexedWriter,
  dtype_for_vocabulary,
)

DATA = Path(__file__).parent.parent / "data" / "indexed"
EXPECTED = np.load(DATA / "expected.npz")
NAMES = sorted({key.split("/")[0] for key in EXPECTED.files})


def golden_dtype(name: str) -> str:
  if name.startswith("dtype_"):
    return name.removeprefix("dtype_")
  return "uint16" if name.startswith(("u16", "merged")) else "int32"


def files(folder: Path) -> list[str]:
  return sorted(path.name for path in folder.iterdir())


def contents(prefix: Path | str) -> tuple[bytes, bytes]:
  return (
    Path(f"{prefix}.idx").read_bytes(),
    Path(f"{prefix}.bin").read_bytes(),
  )


def run(code: str, *args: str) -> subprocess.Popen:
  """Starts a Python process that runs `code` with `args`."""
  return subprocess.Popen(
    [sys.executable, "-c", textwrap.dedent(code), *args],
    stdout=subprocess.PIPE,
    text=True,
  )


@pytest.mark.parametrize("name", NAMES)
def test_writes_the_bytes_that_megatron_writes(tmp_path, name):
  dtype = golden_dtype(name)
  tokens = np.fromfile(DATA / f"{name}.bin", dtype)
  lengths = EXPECTED[f"{name}/lengths"]
  bounds = EXPECTED[f"{name}/documents"]
  modes = None
  if f"{name}/modes" in EXPECTED.files:
    modes = EXPECTED[f"{name}/modes"]
  ends = np.concatenate(([0], np.cumsum(lengths)))
  multimodal = modes is not None
  with IndexedWriter(
    tmp_path / name, dtype=dtype, multimodal=multimodal
  ) as writer:
    for first, last in itertools.pairwise(bounds):
      writer.add_document(
        tokens[ends[first] : ends[last]],
        lengths[first:last],
        None if modes is None else modes[first:last],
      )

  assert contents(tmp_path / name) == contents(DATA / name)
  assert files(tmp_path) == [f"{name}.bin", f"{name}.idx"]


def test_merges_as_megatron_does(tmp_path):
  with IndexedWriter(tmp_path / "merged", dtype=np.uint16) as writer:
    for name in ("u16_0", "u16_1", "u16_2"):
      writer.add_index(DATA / name)

  assert contents(tmp_path / "merged") == contents(DATA / "merged")


def test_documents_of_every_shape(tmp_path):
  with IndexedWriter(tmp_path / "pair", dtype="uint16") as writer:
    writer.add_document([1, 2, 3])
    writer.add_document([])
    writer.add_document([4, 5], lengths=[1, 0, 1])
    writer.add_document(np.array([], np.int64), lengths=[0])
    writer.add_document(np.array([7, 65535], np.uint64))

  reader = IndexedReader(tmp_path / "pair")
  assert reader.document_indices.tolist() == [0, 1, 1, 4, 5, 6]
  assert [sequence.tolist() for sequence in reader] == [
    [1, 2, 3],
    [4],
    [],
    [5],
    [],
    [7, 65535],
  ]
  reader.verify()


def test_no_document_is_a_pair_too(tmp_path):
  with IndexedWriter(tmp_path / "pair", dtype="int32", multimodal=True):
    pass
  write_pair(tmp_path / "other", [], dtype="int32")
  assert contents(tmp_path / "pair") == contents(tmp_path / "other")


def test_long_columns_are_written_block_by_block(tmp_path, monkeypatch):
  monkeypatch.setattr("hpgrain.sources.column._BLOCK", 3)
  documents = [[[i] * (i % 4)] * (i % 3) for i in range(40)]
  with IndexedWriter(
    tmp_path / "pair", dtype="uint16", multimodal=True
  ) as writer:
    for i, document in enumerate(documents):
      flat = [token for sequence in document for token in sequence]
      lengths = [len(sequence) for sequence in document]
      writer.add_document(flat, lengths, [i % 2] * len(lengths))
  with IndexedWriter(
    tmp_path / "copy", dtype="uint16", multimodal=True
  ) as writer:
    writer.add_index(tmp_path / "pair")

  write_pair(tmp_path / "plain", documents)
  index, tokens = contents(tmp_path / "plain")
  modes = bytes(i % 2 for i in range(40) for _ in range(i % 3))
  assert contents(tmp_path / "pair") == (index + modes, tokens)
  assert contents(tmp_path / "copy") == (index + modes, tokens)


def test_merging_shifts_documents_and_keeps_modes(tmp_path):
  with IndexedWriter(
    tmp_path / "pair", dtype="int32", multimodal=True
  ) as writer:
    writer.add_document([1], modes=[1])
    writer.add_index(DATA / "mm")
    writer.add_document([2], modes=[-128])

  reader = IndexedReader(tmp_path / "pair")
  assert reader.document_indices.tolist() == [0, 1, 3, 4, 7, 8]
  assert reader.modes.tolist() == [1, 0, 1, 0, 0, 1, 0, -128]
  assert reader[7].tolist() == [2]
  reader.verify()


def test_a_merge_takes_only_the_tokens_that_belong_to_sequences(tmp_path):
  prefix = write_pair(tmp_path / "long", [[[1, 2]]])
  os.truncate(f"{prefix}.bin", 50)
  with IndexedWriter(tmp_path / "pair", dtype="uint16") as writer:
    writer.add_index(prefix)
    writer.add_document([3])
  assert [s.tolist() for s in IndexedReader(tmp_path / "pair")] == [[1, 2], [3]]


def test_pointers_beyond_32_bits():
  lengths = np.array([2**31 - 1, 2**31 - 1, 5], np.int32)
  assert index_checks.exclusive_ends(
    lengths, itemsize=8, start=2**40
  ).tolist() == [
    2**40,
    2**40 + 8 * (2**31 - 1),
    2**40 + 16 * (2**31 - 1),
    2**40 + 16 * (2**31 - 1) + 40,
  ]


@pytest.mark.parametrize(
  ("vocab_size", "name"),
  [(65499, "uint16"), (65500, "int32"), (1, "uint16"), (200_000, "int32")],
)
def test_dtype_for_a_vocabulary(vocab_size, name):
  assert dtype_for_vocabulary(vocab_size).name == name


@pytest.mark.parametrize("dtype", [None, "uint32", "text", object()])
def test_a_dtype_without_a_code_leaves_nothing(tmp_path, dtype):
  with pytest.raises(
    ValueError, match=r"^dtype .* has no code in the \.idx format; use one of"
  ):
    IndexedWriter(tmp_path / "pair", dtype=dtype)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["int32", np.int32, np.dtype(">i4")])
def test_dtype_by_any_name(tmp_path, dtype):
  with IndexedWriter(tmp_path / "pair", dtype=dtype) as writer:
    writer.add_document(np.array([1, -2], ">i8"))
  assert IndexedReader(tmp_path / "pair").dtype == np.int32
  assert IndexedReader(tmp_path / "pair")[0].tolist() == [1, -2]


@pytest.mark.parametrize("dtype", ["uint32", "bool", "tokens", np.complex64])
def test_dtypes_without_a_code(tmp_path, dtype):
  with pytest.raises(ValueError, match=r"no code in the \.idx format; use one"):
    IndexedWriter(tmp_path / "pair", dtype=dtype)
  assert files(tmp_path) == []


@pytest.mark.parametrize(
  ("dtype", "tokens", "message"),
  [
    ("uint16", [1, 65536], r"token 65536 at position 1 does not fit uint16"),
    ("uint16", [3, 4, -1], r"token -1 at position 2 .* which holds 0 to 65535"),
    ("int32", [2**31], r"token 2147483648 at position 0 does not fit int32"),
    ("int64", np.array([2**63], np.uint64), r"token 9223372036854775808 at"),
    ("uint8", np.array([0, 256], np.uint16), r"token 256 at position 1"),
    ("int8", [-129], r"which holds -128 to 127"),
    ("uint16", [1.0], r"must be integers, got dtype float64"),
    ("uint16", [True], r"must be integers, got dtype bool"),
    ("uint16", [2**70], r"must be integers, got dtype object"),
    ("uint16", [[1], [2]], r"must be 1-D, got the shape \(2, 1\)"),
    ("uint16", 5, r"must be 1-D, got the shape \(\)"),
    ("float32", [0.1], r"0\.1 at position 0 cannot be stored as float32"),
    ("float32", [1, 2**24 + 1], r"16777217 at position 1 cannot be stored"),
    ("float32", [1e300], r"1e\+300 at position 0 cannot be stored"),
    ("float64", ["a"], r"must be numbers, got dtype <U1"),
  ],
)
def test_tokens_that_would_not_come_back_are_refused(
  tmp_path, dtype, tokens, message
):
  with IndexedWriter(tmp_path / "pair", dtype=dtype) as writer:
    writer.add_document([1])
    with pytest.raises(ValueError, match=rf"pair, document 1: .*{message}"):
      writer.add_document(tokens)
    writer.add_document([2])

  # Nothing of the refused document was written.
  assert [s.tolist() for s in IndexedReader(tmp_path / "pair")] == [[1], [2]]


def test_floats_that_come_back_are_stored(tmp_path):
  with IndexedWriter(tmp_path / "pair", dtype="float32") as writer:
    writer.add_document([0.5, float("inf"), float("nan"), -0.0])
    writer.add_document([2**24])
  reader = IndexedReader(tmp_path / "pair")
  np.testing.assert_array_equal(
    reader[0], np.array([0.5, np.inf, np.nan, -0.0], np.float32)
  )
  assert reader[1].tolist() == [2.0**24]


@pytest.mark.parametrize(
  ("lengths", "message"),
  [
    ([2], r"add up to 2 and the least is 2, but it has 3 tokens"),
    ([4, -1], r"add up to 3 and the least is -1, but it has 3 tokens"),
    ([], r"add up to 0 and the least is 0, but it has 3 tokens"),
    ([1.0, 2.0], r"lengths must be 1-D integers, got dtype float64"),
    ([[3]], r"lengths must be 1-D integers, got dtype int64 of shape \(1, 1\)"),
    ([2**63 - 1, 2**63 - 1, 5], r"add up to 18446744073709551619"),
  ],
)
def test_lengths_that_do_not_add_up(tmp_path, lengths, message):
  with (
    pytest.raises(ValueError, match=message),
    IndexedWriter(tmp_path / "pair", dtype="uint16") as writer,
  ):
    writer.add_document([1, 2, 3], lengths)
  assert files(tmp_path) == []


@pytest.mark.parametrize(
  ("modes", "message"),
  [
    ([0], r"it has 2 sequences, got the modes \[0\]"),
    ([0, 128], r"one mode from -128 to 127 for each"),
    ([0.5, 1.0], r"modes must be 1-D integers, got dtype float64"),
  ],
)
def test_modes_that_do_not_fit(tmp_path, modes, message):
  with IndexedWriter(
    tmp_path / "pair", dtype="uint16", multimodal=True
  ) as writer:
    with pytest.raises(ValueError, match=message):
      writer.add_document([1, 2, 3], [1, 2], modes)
    writer.add_document([1, 2, 3], [1, 2])
  assert IndexedReader(tmp_path / "pair").modes.tolist() == [0, 0]


def test_modes_of_a_plain_pair_are_refused(tmp_path):
  with (
    IndexedWriter(tmp_path / "pair", dtype="uint16") as writer,
    pytest.raises(ValueError, match=r"the pair is not multimodal"),
  ):
    writer.add_document([1], modes=[0])


@pytest.mark.parametrize(
  ("name", "dtype", "multimodal", "message"),
  [
    ("i32_a", "uint16", False, r"i32_a has ids of int32, .* in uint16"),
    ("mm", "int32", False, r"mm has modes, but .* with multimodal=False"),
    ("i32_a", "int32", True, r"i32_a has no modes, but .* multimodal=True"),
  ],
)
def test_pairs_that_cannot_be_merged(
  tmp_path, name, dtype, multimodal, message
):
  with IndexedWriter(
    tmp_path / "pair", dtype=dtype, multimodal=multimodal
  ) as writer:
    with pytest.raises(ValueError, match=message):
      writer.add_index(DATA / name)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.idx does not exist"):
      writer.add_index(tmp_path / "nowhere")
    writer.add_document([5])
  assert [s.tolist() for s in IndexedReader(tmp_path / "pair")] == [[5]]


def test_damage_is_not_merged(tmp_path):
  prefix = write_pair(tmp_path / "bad", [[[1, 2]], [[3]], [[4]]])
  with Path(f"{prefix}.idx").open("r+b") as file:
    file.seek(34)
    file.write(b"\x01")
  with IndexedWriter(tmp_path / "pair", dtype="uint16") as writer:
    with pytest.raises(ValueError, match=r"sequence 1 begins at byte 4, but"):
      writer.add_index(prefix)
    writer.add_document([5])
  assert [s.tolist() for s in IndexedReader(tmp_path / "pair")] == [[5]]


def test_an_exception_in_the_body_leaves_nothing(tmp_path):
  with (
    pytest.raises(RuntimeError, match="my own"),
    IndexedWriter(tmp_path / "pair", dtype="uint16") as writer,
  ):
    writer.add_document([1])
    assert files(tmp_path) == ["pair.bin.partial", "pair.idx.partial"]
    raise RuntimeError("my own")
  assert files(tmp_path) == []
  with pytest.raises(ValueError, match=r"the writer was discarded, nothing"):
    writer.add_document([1])


def test_an_exception_leaves_the_pair_that_was_there(tmp_path):
  prefix = write_pair(tmp_path / "pair", [[[1, 2]]])
  before = contents(prefix)
  with (
    pytest.raises(RuntimeError, match="my own"),
    IndexedWriter(prefix, dtype="uint16") as writer,
  ):
    writer.add_document([3])
    raise RuntimeError("my own")
  assert contents(prefix) == before
  assert files(tmp_path) == ["pair.bin", "pair.idx"]


def test_a_new_pair_replaces_the_old_one_and_not_its_views(tmp_path):
  prefix = write_pair(tmp_path / "pair", [[[1, 2]]])
  old = IndexedReader(prefix)
  view = old[0]
  with IndexedWriter(prefix, dtype="uint16") as writer:
    writer.add_index(prefix)
    writer.add_document([3])
  assert [s.tolist() for s in IndexedReader(prefix)] == [[1, 2], [3]]
  assert view.tolist() == [1, 2]


def test_a_finished_writer_takes_nothing_more(tmp_path):
  writer = IndexedWriter(tmp_path / "pair", dtype="uint16")
  writer.add_document([1])
  writer.finalize()
  for call in (writer.finalize, lambda: writer.add_document([2])):
    with pytest.raises(ValueError, match=r"the writer was finalized, nothing"):
      call()
  writer.discard()
  assert [s.tolist() for s in IndexedReader(tmp_path / "pair")] == [[1]]


def test_an_exception_after_finalize_keeps_the_pair(tmp_path):
  with (
    pytest.raises(RuntimeError, match="late"),
    IndexedWriter(tmp_path / "pair", dtype="uint16") as writer,
  ):
    writer.add_document([1])
    writer.finalize()
    raise RuntimeError("late")
  assert files(tmp_path) == ["pair.bin", "pair.idx"]


def test_folders_in_the_way(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"none is not a folder, so"):
    IndexedWriter(tmp_path / "none" / "pair", dtype="uint16")
  (tmp_path / "pair.bin").mkdir()
  with pytest.raises(IsADirectoryError, match=r"pair\.bin is a folder"):
    IndexedWriter(tmp_path / "pair", dtype="uint16")
  assert files(tmp_path) == ["pair.bin"]


@pytest.mark.parametrize("step", range(4))
def test_a_failure_while_publishing_leaves_no_mixed_pair(
  tmp_path, monkeypatch, step
):
  prefix = write_pair(tmp_path / "pair", [[[1, 2]]])
  before = contents(prefix)
  calls = iter(range(100))

  def fail(*args):
    if next(calls) == step:
      raise OSError("no more")
    return real(*args)

  # Two files are synced, then the folder once the old .idx is gone, then the
  # folder once the new .bin is there.
  real = os.fsync
  monkeypatch.setattr(partial_pair.os, "fsync", fail)
  with (
    pytest.raises(OSError, match="no more"),
    IndexedWriter(prefix, dtype="uint16") as writer,
  ):
    writer.add_document([3])
  left = files(tmp_path)
  if step < 2:
    assert contents(prefix) == before
    assert left == ["pair.bin", "pair.idx"]
  else:
    assert "pair.idx" not in left
    assert not any(name.endswith(".partial") for name in left)


def test_a_file_size_limit_leaves_nothing(tmp_path):
  code = """
    import resource, sys
    from hpgrain.sources.indexed import IndexedWriter
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
    try:
      with IndexedWriter(sys.argv[1], dtype="int64") as writer:
        for i in range(100):
          writer.add_document(range(10_000))
    except OSError as error:
      print("failed", error.errno, i)
  """
  process = run(code, str(tmp_path / "pair"))
  output, _ = process.communicate(timeout=120)
  assert output.startswith("failed 27 ")
  assert files(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path):
  disk = tmp_path / "disk"
  disk.mkdir()
  mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
  if os.geteuid() or subprocess.run(mount, check=False).returncode:
    pytest.skip("no right to mount a small disk")
  try:
    written = 0
    with (
      pytest.raises(OSError, match=r"No space left"),
      IndexedWriter(disk / "pair", dtype="int64") as writer,
    ):
      for _ in range(100):
        writer.add_document(range(10_000))
        written += 1
    assert 20 < written < 60
    assert files(disk) == []
    # Full only when the .idx is completed: many sequences, few tokens.
    with (
      pytest.raises(OSError, match=r"No space left"),
      IndexedWriter(disk / "pair", dtype="uint8") as writer,
    ):
      for _ in range(6):
        writer.add_document([], np.zeros(60_000, np.int64))
    assert files(disk) == []
    with IndexedWriter(disk / "pair", dtype="int64") as writer:
      writer.add_document([1])
    assert files(disk) == ["pair.bin", "pair.idx"]
  finally:
    subprocess.run(["umount", str(disk)], check=True)


def test_a_killed_writer_leaves_no_pair_and_no_lock(tmp_path):
  code = """
    import sys
    from hpgrain.sources.indexed import IndexedWriter
    writer = IndexedWriter(sys.argv[1], dtype="int64")
    print("ready", flush=True)
    while True:
      writer.add_document(range(100_000))
  """
  prefix = tmp_path / "pair"
  process = run(code, str(prefix))
  assert process.stdout.readline() == "ready\n"
  while Path(f"{prefix}.bin.partial").stat().st_size < 1 << 21:
    time.sleep(0.01)
  process.send_signal(signal.SIGKILL)
  process.communicate(timeout=60)

  assert files(tmp_path) == ["pair.bin.partial", "pair.idx.partial"]
  with pytest.raises(FileNotFoundError, match=r"pair\.idx does not exist"):
    IndexedReader(prefix)
  with IndexedWriter(prefix, dtype="uint16") as writer:
    writer.add_document([1])
  assert files(tmp_path) == ["pair.bin", "pair.idx"]
  assert IndexedReader(prefix)[0].tolist() == [1]
  IndexedReader(prefix).verify()


def test_a_second_writer_of_a_prefix_is_refused(tmp_path):
  prefix = tmp_path / "pair"
  with IndexedWriter(prefix, dtype="uint16") as writer:
    writer.add_document([1])
    with pytest.raises(BlockingIOError, match=r"is being written by another"):
      IndexedWriter(prefix, dtype="uint16")
    with IndexedWriter(tmp_path / "pair2", dtype="uint16") as other:
      other.add_document([2])
    writer.add_document([3])
  assert [s.tolist() for s in IndexedReader(prefix)] == [[1], [3]]
  with IndexedWriter(prefix, dtype="uint16") as writer:
    writer.add_document([4])
  assert [s.tolist() for s in IndexedReader(prefix)] == [[4]]


def test_racing_writers_never_make_a_mixed_pair(tmp_path):
  prefix = str(tmp_path / "pair")
  stop = time.monotonic() + 3
  failures, finished, reads = [], [], []

  def write(value: int) -> None:
    while time.monotonic() < stop:
      try:
        with IndexedWriter(prefix, dtype="uint16") as writer:
          for _ in range(value):
            writer.add_document([value] * value)
        finished.append(value)
      except BlockingIOError:
        time.sleep(0.001)
      except BaseException as error:
        failures.append(error)
        raise

  def read() -> None:
    while time.monotonic() < stop:
      try:
        with IndexedReader(prefix) as reader:
          value = len(reader)
          good = all(s.tolist() == [value] * value for s in reader)
          reads.append(value)
        if not good:
          failures.append(value)
      except FileNotFoundError:
        # No .idx while one pair gives way to another.
        pass
      except ValueError as error:
        if "changed since it was opened" not in str(error):
          failures.append(error)

  threads = [threading.Thread(target=write, args=(v,)) for v in (3, 5, 9)]
  threads += [threading.Thread(target=read) for _ in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()

  assert failures == []
  assert set(finished) == {3, 5, 9}
  assert len(set(reads)) > 1
  assert files(tmp_path) == ["pair.bin", "pair.idx"]


def test_memory_does_not_grow_with_sequences(tmp_path):
  code = """
    import sys
    import numpy as np
    from hpgrain.sources.indexed import IndexedWriter
    def peak():
      # Not ru_maxrss, which begins with that of the process that started this.
      lines = open("/proc/self/status").read().splitlines()
      return next(int(l.split()[1]) for l in lines if l.startswith("VmHWM"))
    with IndexedWriter(sys.argv[1], dtype="uint8") as writer:
      for i in range(40):
        if i == 5:
          before = peak()
        writer.add_document(np.zeros(100_000, np.uint8), np.ones(100_000, int))
    after = peak()
    print(after - before)
  """
  process = run(code, str(tmp_path / "pair"))
  output, _ = process.communicate(timeout=120)
  # KiB. The 3,500,000 lengths as int32 would be 14,000 and as a list 28,000.
  assert int(output) < 9_000
  assert len(IndexedReader(tmp_path / "pair")) == 4_000_000


def test_many_documents_are_as_one_by_one(tmp_path):
  documents = [[5, 6, 7], [], [8], [9, 10]]
  with IndexedWriter(tmp_path / "one", dtype="uint16") as writer:
    writer.add_document([1])
    for document in documents:
      writer.add_document(document)
    writer.add_document([2, 3], lengths=[1, 1])
  with IndexedWriter(tmp_path / "many", dtype="uint16") as writer:
    writer.add_document([1])
    writer.add_documents(
      [np.array([5, 6], "u2"), np.array([7, 8, 9, 10], "u2")],
      np.array([3, 1, 2]),
      np.array([1, 0, 1, 1]),
    )
    writer.add_documents([], np.array([], int), np.array([], int))
    writer.add_documents(
      iter([np.array([2, 3], "u2")]), np.array([1, 1]), np.array([2])
    )
  for suffix in ("bin", "idx"):
    one, many = (
      (tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "many")
    )
    assert one == many


@pytest.mark.parametrize(
  ("tokens", "lengths", "counts", "message"),
  [
    ([[1, 2]], [3], [1], "2 tokens were given, but the lengths add up to 3"),
    ([[1, 2]], [2], [2], "1 sequences were given, but the documents have 2"),
    ([[1]], [2, -1], [2], "sequences have -1 to 2 tokens"),
    ([[1]], [2**31], [1], "the format holds 0 to 2147483647"),
    ([[1]], [1], [2, -1], "the least has -1"),
  ],
)
def test_contradicting_columns_are_refused(
  tmp_path, tokens, lengths, counts, message
):
  writer = IndexedWriter(tmp_path / "x", dtype="uint16")
  with pytest.raises(ValueError, match=message):
    writer.add_documents(
      [np.array(block, "u2") for block in tokens],
      np.array(lengths),
      np.array(counts),
    )
  writer.discard()
  assert list(tmp_path.iterdir()) == []


def test_blocks_of_another_dtype_are_refused(tmp_path):
  one = np.array([1])
  writer = IndexedWriter(tmp_path / "y", dtype="uint16")
  with pytest.raises(
    ValueError, match="tokens of int64 were given to a writer"
  ):
    writer.add_documents([one], one, one)


def test_modes_of_many_documents_are_written(tmp_path):
  with IndexedWriter(tmp_path / "one", dtype="uint16", multimodal=True) as w:
    w.add_document([1, 2, 3], [1, 2], [-1, 2])
    w.add_document([])
    w.add_document([4])
  with IndexedWriter(tmp_path / "many", dtype="uint16", multimodal=True) as w:
    w.add_documents(
      [np.array([1, 2, 3], "u2")],
      np.array([1, 2]),
      np.array([2, 0]),
      np.array([-1, 2], np.int8),
    )
    w.add_documents([np.array([4], "u2")], np.array([1]), np.array([1]))
  for suffix in ("bin", "idx"):
    one, many = (
      (tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "many")
    )
    assert one == many


@pytest.mark.parametrize(
  ("multimodal", "modes", "message"),
  [
    (False, np.zeros(1, np.int8), "modes were given, but the pair is not"),
    (True, np.zeros(2, np.int8), r"must be int8\[1\].* of shape \(2,\)"),
    (True, np.zeros(1, np.int64), r"must be int8\[1\].* got int64"),
  ],
)
def test_modes_that_do_not_fit_are_refused(
  tmp_path, multimodal, modes, message
):
  one = np.array([1])
  writer = IndexedWriter(tmp_path / "x", dtype="uint16", multimodal=multimodal)
  with pytest.raises(ValueError, match=message):
    writer.add_documents([one.astype("u2")], one, one, modes)
  writer.discard()


@pytest.mark.parametrize("multimodal", [False, True])
def test_digests_are_those_of_the_finished_files(tmp_path, multimodal):
  writer = IndexedWriter(tmp_path / "x", dtype="uint16", multimodal=multimodal)
  with pytest.raises(ValueError, match="is not finalized"):
    writer.digests()
  writer.add_document([1, 2, 3], [2, 1])
  writer.add_document([])
  one = np.array([1])
  writer.add_documents([np.array([7], "u2")], one, one)
  writer.finalize()
  assert writer.digests() == {
    suffix: f"xxh3_128:{xxhash.xxh3_128_hexdigest(path.read_bytes())}"
    for suffix in ("bin", "idx")
    for path in [tmp_path / f"x.{suffix}"]
  }


def test_digest_of_an_added_pair(tmp_path):
  with IndexedWriter(tmp_path / "a", dtype="int32") as first:
    first.add_document([1, 2, 3])
  with IndexedWriter(tmp_path / "b", dtype="int32") as second:
    second.add_index(tmp_path / "a")
  assert first.digests() == second.digests()
