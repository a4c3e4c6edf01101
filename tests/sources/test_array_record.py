"""ArrayRecord files of documents: what was written comes back, or an error."""

import itertools
import os
import pickle
import signal
import struct
import subprocess
import sys
import textwrap

import grain
import numpy as np
import pytest
import xxhash
from array_record.python import array_record_module
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.sources import array_record_writer
from hpgrain.sources.array_record import (
  ArrayRecordDocuments,
  ArrayRecordWriter,
  array_record_path,
  is_array_record,
)

DTYPES = "uint8 int8 int16 int32 int64 float64 float32 uint16".split()
# A document is a list of sequences.
DOCUMENTS = [[[1, 2, 3]], [], [[4], [], [5, 6]], [[]], [[7]]]


def add(writer, documents, modes=None):
  sequences = [s for document in documents for s in document]
  writer.add_documents(
    [np.array([t for s in sequences for t in s], writer_dtype(writer))],
    np.array([len(s) for s in sequences], np.int64),
    np.array([len(document) for document in documents], np.int64),
    None if modes is None else np.array(modes, np.int8),
  )


def writer_dtype(writer):
  return writer._dtype


def write(path, documents=DOCUMENTS, *, dtype="uint16", modes=None):
  multimodal = modes is not None
  with ArrayRecordWriter(path, dtype=dtype, multimodal=multimodal) as writer:
    add(writer, documents, modes)
  return path


def read(path):
  with ArrayRecordDocuments(path) as documents:
    return [listed(document) for document in documents_of(documents)]


def documents_of(documents):
  return [documents[i] for i in range(len(documents))]


def listed(document):
  bounds = np.cumsum([0, *document.lengths])
  return [document.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)]


def names(folder):
  return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def path(tmp_path):
  return tmp_path / "x.array_record"


@pytest.mark.parametrize("dtype", DTYPES)
def test_documents_of_every_dtype_come_back(path, dtype):
  write(path, dtype=dtype)
  assert read(path) == DOCUMENTS
  with ArrayRecordDocuments(path) as documents:
    assert documents.dtype == np.dtype(dtype)
    assert documents.multimodal is False
    assert documents[0].tokens.dtype == np.dtype(dtype)
    assert documents[0].lengths.dtype == np.int32
    assert documents[0].modes is None


def test_record_holds_the_documented_bytes(path):
  write(path, [[[1, 2, 3], [4]], []], dtype="uint16")
  reader = array_record_module.ArrayRecordReader(str(path))
  assert reader.read([0, 1]) == [
    bytes([1, 8, 0, 0])
    + struct.pack("<Iii", 2, 3, 1)
    + struct.pack("<4H", 1, 2, 3, 4),
    bytes([1, 8, 0, 0, 0, 0, 0, 0]),
  ]


def test_record_with_modes_holds_the_documented_bytes(path):
  write(path, [[[1], [2]]], dtype="int32", modes=[-1, 5])
  reader = array_record_module.ArrayRecordReader(str(path))
  assert reader.read([0]) == [
    bytes([1, 4, 1, 0])
    + struct.pack("<Iii", 2, 1, 1)
    + struct.pack("<bb", -1, 5)
    + bytes(6)
    + struct.pack("<ii", 1, 2)
  ]


def test_modes_come_back(path):
  write(path, modes=[1, -2, 3, 4, 5, 6])
  with ArrayRecordDocuments(path) as documents:
    assert documents.multimodal is True
    found = [document.modes.tolist() for document in documents_of(documents)]
    (block,) = documents.blocks()
    assert block.modes.tolist() == [1, -2, 3, 4, 5, 6]
  assert found == [[1], [], [-2, 3, 4], [5], [6]]


def test_modes_not_given_are_zero(path):
  with ArrayRecordWriter(path, dtype="uint8", multimodal=True) as writer:
    add(writer, [[[1], [2]]])
  with ArrayRecordDocuments(path) as documents:
    assert documents[0].modes.tolist() == [0, 0]


def test_grain_reads_the_file(path):
  write(path)
  source = grain.sources.ArrayRecordDataSource(str(path))
  assert len(source) == len(DOCUMENTS)
  assert source[0][16:] == np.array([1, 2, 3], "<u2").tobytes()
  reader = array_record_module.ArrayRecordReader(str(path))
  # Grain complains about other sizes of groups.
  assert reader.writer_options_string().startswith("group_size:1,")


def test_the_reader_is_a_source_for_grain(path):
  write(path)
  documents = ArrayRecordDocuments(path)
  dataset = grain.MapDataset.source(documents).map(lambda d: d.tokens.tolist())
  assert list(dataset) == [[1, 2, 3], [], [4, 5, 6], [], [7]]
  again = pickle.loads(pickle.dumps(documents))
  assert listed(again[2]) == DOCUMENTS[2]


def test_a_pickled_reader_refuses_another_file(path):
  write(path)
  data = pickle.dumps(ArrayRecordDocuments(path))
  write(path, DOCUMENTS[:2])
  with pytest.raises(ValueError, match=r"had 5 documents .* has 2 now"):
    pickle.loads(data)


def test_negative_numbers_count_from_the_end(path):
  write(path)
  with ArrayRecordDocuments(path) as documents:
    assert listed(documents[-1]) == [[7]]
    for index in (5, -6):
      with pytest.raises(IndexError, match=f"has 5 documents, got .* {index}"):
        documents[index]


def test_file_without_a_document(path):
  write(path, [])
  with ArrayRecordDocuments(path) as documents:
    assert len(documents) == 0
    assert documents.dtype is None
    assert list(documents.blocks()) == []


def test_how_documents_are_added_does_not_change_the_bytes(tmp_path):
  write(tmp_path / "a")
  with ArrayRecordWriter(tmp_path / "b", dtype="uint16") as writer:
    for document in DOCUMENTS:
      add(writer, [document])
  with ArrayRecordWriter(tmp_path / "c", dtype="uint16") as writer:
    tokens = [np.array([t], "<u2") for t in range(1, 8)]
    tokens.insert(3, np.empty(0, "<u2"))
    writer.add_documents(
      iter(tokens), np.array([3, 1, 0, 2, 0, 1]), np.array([1, 0, 3, 1, 1])
    )
  assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
  assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()


def test_digest_is_that_of_the_finished_file(path):
  writer = ArrayRecordWriter(path, dtype="uint16")
  add(writer, DOCUMENTS)
  with pytest.raises(ValueError, match="is not finalized"):
    writer.digests()
  writer.finalize()
  digest = xxhash.xxh3_128_hexdigest(path.read_bytes())
  assert writer.digests() == {"array_record": f"xxh3_128:{digest}"}


@settings(max_examples=30, deadline=None)
@given(
  documents=st.lists(
    st.lists(st.lists(st.integers(0, 65535), max_size=9), max_size=4),
    max_size=9,
  ),
  block_bytes=st.sampled_from([1, 64, 8 << 20]),
)
def test_blocks_hold_all_documents(tmp_path_factory, documents, block_bytes):
  path = write(tmp_path_factory.mktemp("blocks") / "x", documents)
  with (
    pytest.MonkeyPatch.context() as patch,
    ArrayRecordDocuments(path) as reader,
  ):
    patch.setattr(
      "hpgrain.sources.array_record_reader._BLOCK_BYTES", block_bytes
    )
    found = []
    for block in reader.blocks():
      assert block.first == len(found)
      tokens = np.concatenate([*block.tokens, np.empty(0, "u2")]).tolist()
      assert len(tokens) == block.token_bounds()[-1]
      lengths = iter(block.lengths.tolist())
      for count in block.counts.tolist():
        sequences = []
        for _ in range(count):
          length = next(lengths)
          sequences.append(tokens[:length])
          tokens = tokens[length:]
        found.append(sequences)
  assert found == documents


@pytest.mark.parametrize(
  ("tokens", "lengths", "counts", "message"),
  [
    ([[1, 2]], [3], [1], "the tokens end, but the lengths ask for 1 more"),
    ([[1], [2, 3]], [2], [1], "1 more tokens were given than the lengths"),
    ([[1, 2]], [2], [2], "1 sequences were given, but the documents have 2"),
    ([[1]], [2, -1], [2], "sequences have -1 to 2 tokens"),
    ([[1]], [2**31], [1], "the format holds 0 to 2147483647"),
  ],
)
def test_contradicting_columns_are_refused(
  path, tokens, lengths, counts, message
):
  writer = ArrayRecordWriter(path, dtype="uint16")
  with pytest.raises(ValueError, match=message):
    writer.add_documents(
      [np.array(block, "u2") for block in tokens],
      np.array(lengths),
      np.array(counts),
    )
  writer.discard()
  assert list(path.parent.iterdir()) == []


def test_tokens_of_another_dtype_are_refused(path):
  one = np.array([1])
  writer = ArrayRecordWriter(path, dtype="uint16")
  with pytest.raises(ValueError, match="tokens of int64 were given"):
    writer.add_documents([one], one, one)
  assert list(path.parent.iterdir()) == []


def test_modes_that_are_not_wanted_are_refused(path):
  one = np.array([1])
  writer = ArrayRecordWriter(path, dtype="uint16")
  with pytest.raises(ValueError, match="modes were given, but"):
    writer.add_documents([one.astype("u2")], one, one, one.astype(np.int8))
  writer.discard()


def test_document_beyond_the_limit_is_refused(path, monkeypatch):
  monkeypatch.setattr(array_record_writer, "MAX_RECORD_BYTES", 24)
  writer = ArrayRecordWriter(path, dtype="uint16")
  add(writer, [[[1, 2, 3, 4]]])
  with pytest.raises(
    ValueError, match="document 1 has 5 tokens and takes a record of 26 bytes"
  ):
    add(writer, [[[1, 2, 3, 4, 5]]])
  assert list(path.parent.iterdir()) == []


def test_nothing_is_left_when_the_block_fails(path):
  with pytest.raises(KeyError):
    with ArrayRecordWriter(path, dtype="uint16") as writer:
      add(writer, DOCUMENTS)
      assert names(path.parent) == ["x.array_record.partial"]
      raise KeyError
  assert names(path.parent) == []
  with pytest.raises(ValueError, match="was discarded, nothing can be added"):
    add(writer, DOCUMENTS)
  with pytest.raises(ValueError, match="was discarded already"):
    writer.finalize()


def test_old_file_stays_until_the_new_is_whole(path):
  write(path, [[[1]]])
  with ArrayRecordWriter(path, dtype="uint16") as writer:
    add(writer, DOCUMENTS)
    assert read(path) == [[[1]]]
  assert read(path) == DOCUMENTS
  assert names(path.parent) == ["x.array_record"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_failing_to_finish_leaves_nothing(path, monkeypatch, call):
  def fail(*arguments):
    raise OSError(28, "No space left on device")

  target = "os.fsync" if call == "fsync" else "pathlib.Path.replace"
  writer = ArrayRecordWriter(path, dtype="uint16")
  add(writer, DOCUMENTS)
  monkeypatch.setattr(target, fail)
  with pytest.raises(OSError, match="No space left"):
    writer.finalize()
  assert list(path.parent.iterdir()) == []


def test_second_writer_of_a_path_is_refused(path):
  with ArrayRecordWriter(path, dtype="uint16") as writer:
    add(writer, DOCUMENTS)
    with pytest.raises(BlockingIOError, match="is being written by another"):
      ArrayRecordWriter(path, dtype="uint16")
  assert read(path) == DOCUMENTS


def test_bad_places_are_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match="none is not a folder"):
    ArrayRecordWriter(tmp_path / "none" / "x", dtype="uint16")
  (tmp_path / "x").mkdir()
  with pytest.raises(IsADirectoryError, match="x is a folder"):
    ArrayRecordWriter(tmp_path / "x", dtype="uint16")
  with pytest.raises(ValueError, match="has no code"):
    ArrayRecordWriter(tmp_path / "y", dtype="uint32")
  assert names(tmp_path) == ["x"]


_FULL_DISK = """
import resource, signal, sys
import numpy as np
from hpgrain.sources.array_record import ArrayRecordWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = ArrayRecordWriter(sys.argv[1], dtype="uint16")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
tokens = np.zeros(1 << 20, "u2")
added = 0
try:
  for added in range(200):
    writer.add_documents([tokens], np.array([1 << 20]), np.array([1]))
  writer.finalize()
except OSError as error:
  print(added, error)
"""


def test_full_disk_is_noticed_before_all_is_written(path):
  done = subprocess.run(
    [sys.executable, "-c", _FULL_DISK, str(path)],
    capture_output=True,
    text=True,
    check=True,
    timeout=60,
  )
  added, message = done.stdout.split(maxsplit=1)
  # The library would have taken all 200.
  assert int(added) < 40
  assert "x.array_record could not be written: write() failed" in message
  assert list(path.parent.iterdir()) == []


def test_full_disk_at_the_end_is_an_error(path):
  code = _FULL_DISK.replace("range(200)", "range(1)")
  done = subprocess.run(
    [sys.executable, "-c", code, str(path)],
    capture_output=True,
    text=True,
    check=True,
    timeout=60,
  )
  assert "could not be written: write() failed" in done.stdout
  assert list(path.parent.iterdir()) == []


def test_killed_writer_leaves_nothing_that_passes_for_a_file(path):
  code = """
  import os, signal, sys
  import numpy as np
  from hpgrain.sources.array_record import ArrayRecordWriter
  writer = ArrayRecordWriter(sys.argv[1], dtype="uint16")
  writer.add_documents([np.zeros(9, "u2")], np.array([9]), np.array([1]))
  os.kill(os.getpid(), signal.SIGKILL)
  """
  done = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(code), str(path)],
    check=False,
    timeout=60,
  )
  assert done.returncode == -signal.SIGKILL
  assert names(path.parent) == ["x.array_record.partial"]
  # It is not locked any more, and what it left is written over.
  write(path)
  assert names(path.parent) == ["x.array_record"]
  assert read(path) == DOCUMENTS


def test_missing_file_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"y\.array_record is not there"):
    ArrayRecordDocuments(tmp_path / "y.array_record")
  with pytest.raises(FileNotFoundError, match="is not there"):
    ArrayRecordDocuments(tmp_path)


@pytest.mark.parametrize(
  "size", [0, 1, 64, 100, 65535, 65536, 65600, 100_000, 131_071]
)
def test_truncated_file_is_refused(path, size):
  write(path)
  assert path.stat().st_size == 131_072
  os.truncate(path, size)
  with pytest.raises(ValueError, match=r"x\.array_record cannot be read: "):
    ArrayRecordDocuments(path)


def test_what_follows_a_file_is_refused(path):
  write(path)
  path.write_bytes(path.read_bytes() + b"x")
  with pytest.raises(ValueError, match="cannot be read"):
    ArrayRecordDocuments(path)


def test_other_bytes_are_refused(path):
  path.write_bytes(os.urandom(200_000))
  with pytest.raises(ValueError, match="cannot be read"):
    ArrayRecordDocuments(path)


def test_no_flipped_byte_gives_other_documents(path):
  """The format's gaps are not covered by its own hashes; the digest is."""
  write(path)
  data = path.read_bytes()
  used = [i for i, byte in enumerate(data) if byte]
  for position in used[::3]:
    path.write_bytes(
      data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
    )
    try:
      assert read(path) == DOCUMENTS
    except ValueError as error:
      assert "x.array_record" in str(error)


def test_damaged_record_is_named(path):
  documents = [[list(range(k, k + 50))] for k in range(20)]
  write(path, documents)
  data = bytearray(path.read_bytes())
  at = data.index(np.arange(7, 57, dtype="<u2").tobytes())
  data[at] ^= 1
  path.write_bytes(data)
  with ArrayRecordDocuments(path) as reader:
    assert listed(reader[6]) == documents[6]
    with pytest.raises(ValueError, match="record 7 cannot be read"):
      reader[7]
    with pytest.raises(ValueError, match="record 7 cannot be read"):
      list(reader.blocks())


def head(version=1, code=8, flags=0, zero=0, count=0):
  return struct.pack("<BBBBI", version, code, flags, zero, count)


@pytest.mark.parametrize(
  ("record", "message"),
  [
    (b"", "record 0 has 0 bytes, the head of a document alone takes 8"),
    (b"1234567", "has 7 bytes, the head of a document alone takes 8"),
    (head(version=2), r"begins with the bytes 2 \(version\), 8, 0 \(flags\)"),
    (head(flags=2), r"begins with the bytes 1 \(version\), 8, 2 \(flags\)"),
    (head(zero=1), r"and 1; a document of tokens begins with 1, its"),
    (head(code=9), "has the dtype code 9; the codes are 1 to 8"),
    (head(count=1), "lengths of its 1 sequences alone end at byte 16"),
    (
      head(count=2**32 - 1),
      "lengths of its 4294967295 sequences alone end at byte",
    ),
    (
      head(count=1) + struct.pack("<ii", 3, 0) + bytes(4),
      "has 20 bytes, but its 1 sequences of 3 tokens of uint16 take 22",
    ),
    (
      head(count=2) + struct.pack("<ii", 3, -1) + bytes(4),
      "has a sequence of -1 tokens; a length cannot be negative",
    ),
    (
      head(count=1) + struct.pack("<ii", 1, 5) + bytes(2),
      "has other bytes than zeros from byte 12 to byte 16",
    ),
    (head() + b"1", "has 9 bytes, but its 0 sequences of 0 tokens"),
  ],
)
def test_records_that_are_no_documents_are_refused(path, record, message):
  writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
  writer.write(record)
  writer.close()
  with pytest.raises(ValueError, match=message):
    ArrayRecordDocuments(path)


def test_records_of_two_kinds_are_refused(path):
  writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
  for record in (head(), head(code=4), head(flags=1)):
    writer.write(record)
  writer.close()
  with ArrayRecordDocuments(path) as documents:
    with pytest.raises(
      ValueError,
      match=r"record 1 has the dtype code 4 and no modes, record 0 has .* 8",
    ):
      documents[1]
    with pytest.raises(
      ValueError, match="record 2 has the dtype code 8 and modes, record 0"
    ):
      documents[2]


def test_many_documents_take_little_memory(path):
  """60 bytes a document is the library's index, no more is to be ours."""
  code = """
  import sys
  import numpy as np
  from hpgrain.sources.array_record import ArrayRecordWriter
  def peak():
    # Not ru_maxrss, which begins with that of the process that started this.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(l.split()[1]) for l in lines if l.startswith("VmHWM"))
  before = peak()
  with ArrayRecordWriter(sys.argv[1], dtype="uint16") as writer:
    for _ in range(50):
      writer.add_documents(
        [np.zeros(5000, "u2")] * 100, np.full(10000, 50), np.full(10000, 1)
      )
  after = peak()
  print((after - before) // 1024)
  """
  done = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(code), str(path)],
    capture_output=True,
    text=True,
    check=True,
    timeout=120,
  )
  assert int(done.stdout) < 60


def test_names():
  assert array_record_path("a/b") == "a/b.array_record"
  assert is_array_record("a/b.array_record")
  assert not is_array_record("a/b")
