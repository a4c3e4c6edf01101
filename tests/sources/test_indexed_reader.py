"""Reading pairs: arrays, checks, mappings, and what outlives them."""

import gc
import multiprocessing
import os
import pickle
import re
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from corpora import write_pair

from hpgrain.sources import open_pairs
from hpgrain.sources.indexed import IndexedReader, set_max_open_files

DATA = Path(__file__).parent.parent / "data" / "indexed"
EXPECTED = np.load(DATA / "expected.npz")
NAMES = sorted({key.split("/")[0] for key in EXPECTED.files})
WAYS = pytest.mark.parametrize("mmap", [True, False])


@pytest.fixture
def pair(tmp_path) -> str:
  """Documents [[1, 2, 3], [4]], [] and [[5, 6]] in uint16."""
  return write_pair(tmp_path / "pair", [[[1, 2, 3], [4]], [], [[5, 6]]])


@pytest.fixture(autouse=True)
def default_max_open_files():
  yield
  set_max_open_files(512)


def patch(path: str, offset: int, form: str, value: int) -> None:
  """Overwrites one number of a file, and leaves its time as it was."""
  stat = Path(path).stat()
  with Path(path).open("r+b") as file:
    file.seek(offset)
    file.write(struct.pack(form, value))
  os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def num_open_files() -> int:
  """How many file descriptors this process has open."""
  return len(list(Path("/proc/self/fd").iterdir()))


def mapped_files(folder: Path) -> int:
  """How many mappings this process has of files in a folder."""
  lines = Path("/proc/self/maps").read_text().splitlines()
  return sum(str(folder) in line for line in lines)


@WAYS
@pytest.mark.parametrize("name", NAMES)
def test_reads_what_megatron_wrote(name, mmap):
  reader = IndexedReader(DATA / name, mmap=mmap)

  lengths = EXPECTED[f"{name}/lengths"]
  np.testing.assert_array_equal(reader.lengths, lengths, strict=True)
  np.testing.assert_array_equal(
    reader.pointers, EXPECTED[f"{name}/pointers"], strict=True
  )
  np.testing.assert_array_equal(
    reader.document_indices, EXPECTED[f"{name}/documents"], strict=True
  )
  if f"{name}/modes" in EXPECTED.files:
    np.testing.assert_array_equal(
      reader.modes, EXPECTED[f"{name}/modes"], strict=True
    )
  else:
    assert reader.modes is None
  if name.startswith("dtype_"):
    assert reader.dtype == np.dtype(name.removeprefix("dtype_"))
  flat = np.fromfile(DATA / f"{name}.bin", reader.dtype)
  ends = np.cumsum(lengths)
  assert len(reader) == len(lengths)
  for i, (end, length) in enumerate(zip(ends, lengths, strict=True)):
    np.testing.assert_array_equal(
      reader[i], flat[end - length : end], strict=True
    )
  assert reader.num_tokens == ends[-1]
  reader.verify()


@WAYS
def test_sequences_documents_and_windows(pair, mmap):
  reader = IndexedReader(pair, mmap=mmap)

  assert len(reader) == 3
  assert reader.prefix == pair
  assert reader.num_documents == 3
  assert reader.num_tokens == 6
  assert (reader.idx_bytes, reader.bin_bytes) == (34 + 36 + 32, 12)
  assert reader.dtype == np.uint16
  assert [sequence.tolist() for sequence in reader] == [[1, 2, 3], [4], [5, 6]]
  assert reader[np.int64(2)].tolist() == [5, 6]
  assert reader[-1].tolist() == [5, 6]
  assert reader.document_indices.tolist() == [0, 2, 2, 3]
  assert reader.get(0, 1).tolist() == [2, 3]
  assert reader.get(0, 1, 1).tolist() == [2]
  assert reader.get(0, 3).tolist() == []
  assert reader.get(0, offset=0, length=0).tolist() == []
  assert not reader[0].flags.writeable
  assert not reader.lengths.flags.writeable


def test_slices_are_lists_of_views(pair):
  reader = IndexedReader(pair)

  assert [view.tolist() for view in reader[0:2]] == [[1, 2, 3], [4]]
  assert [view.tolist() for view in reader[-1:]] == [[5, 6]]
  assert [view.tolist() for view in reader[:9]] == [[1, 2, 3], [4], [5, 6]]
  assert reader[2:1] == []
  with pytest.raises(ValueError, match=r"contiguous, got step 2"):
    reader[::2]
  with pytest.raises(ValueError, match=r"contiguous, got step -1"):
    reader[::-1]


def test_slices_need_mmap(pair):
  with pytest.raises(ValueError, match=r"opened with mmap=False"):
    IndexedReader(pair, mmap=False)[0:1]


@WAYS
@pytest.mark.parametrize("index", [3, -4, 2**63])
def test_sequences_that_do_not_exist(pair, mmap, index):
  reader = IndexedReader(pair, mmap=mmap)
  with pytest.raises(IndexError, match=rf"3 sequences, got the number {index}"):
    reader[index]


@WAYS
@pytest.mark.parametrize(
  ("offset", "length"), [(-1, None), (4, None), (0, 4), (2, 2), (1, -1)]
)
def test_windows_outside_a_sequence(pair, mmap, offset, length):
  reader = IndexedReader(pair, mmap=mmap)
  message = rf"0 has 3 tokens, got offset={offset} and length={length}\."
  with pytest.raises(ValueError, match=message):
    reader.get(0, offset, length)


def test_a_pair_without_documents(tmp_path):
  reader = IndexedReader(write_pair(tmp_path / "none", []), multimodal=True)

  assert (len(reader), reader.num_documents, reader.num_tokens) == (0, 0, 0)
  assert reader.lengths.tolist() == []
  assert reader.document_indices.tolist() == [0]
  assert reader.modes is not None and reader.modes.tolist() == []
  assert reader[:] == []
  reader.verify()
  with pytest.raises(IndexError, match="has 0 sequences, got the number 0"):
    reader[0]


def test_multimodal_changes_only_the_modes(pair):
  reader = IndexedReader(DATA / "mm", multimodal=False)
  assert reader.modes is None
  assert reader.lengths.tolist() == EXPECTED["mm/lengths"].tolist()
  assert IndexedReader(DATA / "mm", multimodal=True).modes.tolist() == [
    0,
    1,
    0,
    0,
    1,
    0,
  ]
  with pytest.raises(ValueError, match=r"pair\.idx has no modes, but multimod"):
    IndexedReader(pair, multimodal=True)


def test_missing_files_say_what_a_prefix_is(pair):
  with pytest.raises(FileNotFoundError, match=r"pair\.idx\.idx does not exist"):
    IndexedReader(f"{pair}.idx")
  Path(f"{pair}.bin").unlink()
  with pytest.raises(
    FileNotFoundError, match=r"pair\.bin does not exist\. A corpus is a pair"
  ):
    IndexedReader(pair)


# The pair's .idx: lengths at 34, pointers at 46, document indices at 70.
@pytest.mark.parametrize(
  ("offset", "form", "value", "message"),
  [
    (0, "<B", 0, r"begins with b'\\x00MIDIDX\\x00\\x00', an \.idx begins"),
    (9, "<Q", 2, r"is of version 2, only version 1"),
    (17, "<B", 9, r"dtype code 9; the codes are 1 uint8, .*8 uint16"),
    (17, "<B", 0, r"dtype code 0; the codes are"),
    (18, "<Q", 4, r"has 102 bytes, but 4 sequences and 4 .* take 114, or 118"),
    (18, "<Q", 2**64 - 1, r"but 18446744073709551615 sequences and 4 docum"),
    (18, "<Q", 2**61, r"but 2305843009213693952 sequences"),
    (26, "<Q", 5, r"3 sequences and 5 document indices take 110, or 113"),
    (26, "<Q", 2**63, r"and 9223372036854775808 document indices"),
    (26, "<Q", 0, r"has no document index"),
    (70, "<q", 1, r"the document indices run from 1 to 3, but with 3 seq"),
    (94, "<q", 4, r"the document indices run from 0 to 4, but with 3 seq"),
    (46, "<q", 2, r"the first sequence begins at byte 2 of the \.bin"),
    (62, "<q", -2, r"the last sequence, 2, has 2 tokens from byte -2"),
    (62, "<q", 7, r"tokens of uint16 begin at multiples of 2"),
    (42, "<i", -1, r"the last sequence, 2, has -1 tokens from byte 8"),
    (42, "<i", 3, r"has 12 bytes, but by .* ends at byte 14: 2 bytes are mis"),
    (62, "<q", 2**62, r"ends at byte 4611686018427387908: 46116860184273878"),
  ],
)
def test_opening_checks_header_and_ends(pair, offset, form, value, message):
  patch(f"{pair}.idx", offset, form, value)
  with pytest.raises(ValueError, match=message) as caught:
    IndexedReader(pair)
  assert f"{pair}.idx" in str(caught.value)


@pytest.mark.parametrize("size", [0, 5, 33, 34, 101, 103, 104, 106])
def test_an_idx_of_another_size_is_refused(pair, size):
  os.truncate(f"{pair}.idx", size)
  message = (
    r"pair\.idx (begins with b''"
    rf"|has {size} bytes, (the header alone takes 34|but 3 sequences))"
  )
  with pytest.raises(ValueError, match=message):
    IndexedReader(pair)


def test_one_mode_for_each_sequence_makes_an_idx_multimodal(pair):
  os.truncate(f"{pair}.idx", 102 + 3)
  assert IndexedReader(pair).modes.tolist() == [0, 0, 0]


@WAYS
def test_a_longer_bin_is_allowed_a_shorter_is_not(pair, mmap):
  os.truncate(f"{pair}.bin", 20)
  assert IndexedReader(pair, mmap=mmap)[2].tolist() == [5, 6]
  os.truncate(f"{pair}.bin", 11)
  with pytest.raises(ValueError, match=r"pair\.bin has 11 bytes, but by"):
    IndexedReader(pair, mmap=mmap)


@WAYS
@pytest.mark.parametrize(
  ("change", "sequences"),
  [
    ((34, "<i", 2), {0, 1}),  # a length: its own end, and the next's beginning
    ((34, "<i", -3), {0, 1}),
    ((38, "<i", 2**31 - 1), {1, 2}),
    ((54, "<q", 4), {0, 1, 2}),  # a pointer
    ((54, "<q", -(2**63)), {0, 1, 2}),
    ((62, "<q", 6), {1, 2}),
  ],
)
def test_damage_in_the_middle_is_found_where_it_is_read(
  pair, mmap, change, sequences
):
  patch(f"{pair}.idx", *change)
  reader = IndexedReader(pair, mmap=mmap)
  for i in range(3):
    if i not in sequences:
      assert reader[i].tolist() == [[1, 2, 3], [4], [5, 6]][i]
      continue
    with pytest.raises(
      ValueError, match=rf"pair\.idx: sequence {i} has .* dam"
    ):
      reader[i]


@pytest.mark.parametrize(
  ("offset", "form", "value", "message"),
  [
    (34, "<i", -3, r"sequence 0 has -3 tokens; a length cannot be negative"),
    (38, "<i", 2, r"sequence 2 begins at byte 8, but .* put it at byte 10"),
    (54, "<q", 4, r"sequence 1 begins at byte 4, but .* put it at byte 6"),
    (78, "<q", -1, r"document 1 begins at sequence -1, after 0 and of 3"),
    (78, "<q", 3, r"document 2 begins at sequence 2, after 3 and of 3"),
    (86, "<q", 4, r"document 2 begins at sequence 4, after 2 and of 3"),
  ],
)
def test_verify_names_the_first_flaw(pair, offset, form, value, message):
  IndexedReader(pair).verify()
  patch(f"{pair}.idx", offset, form, value)
  with pytest.raises(ValueError, match=rf"pair\.idx: {message}"):
    IndexedReader(pair).verify()


def test_verify_looks_across_its_blocks(pair, monkeypatch):
  monkeypatch.setattr("hpgrain.sources.index_checks._BLOCK", 1)
  IndexedReader(pair).verify()
  patch(f"{pair}.idx", 78, "<q", 3)
  with pytest.raises(ValueError, match=r"document 2 begins at sequence 2"):
    IndexedReader(pair).verify()
  patch(f"{pair}.idx", 62, "<q", 6)
  with pytest.raises(ValueError, match=r"sequence 2 begins at byte 6"):
    IndexedReader(pair).verify()


def test_views_outlive_their_reader(pair, tmp_path):
  reader = IndexedReader(pair)
  kept = [reader[0], reader.lengths, reader.document_indices, *reader[1:]]
  reader.close()
  with pytest.raises(ValueError, match=r"the reader is closed"):
    reader[0]
  del reader
  gc.collect()
  Path(f"{pair}.idx").unlink()
  Path(f"{pair}.bin").unlink()

  assert [view.tolist() for view in kept] == [
    [1, 2, 3],
    [3, 1, 2],
    [0, 2, 2, 3],
    [4],
    [5, 6],
  ]
  assert mapped_files(tmp_path) == 2
  del kept
  gc.collect()
  assert mapped_files(tmp_path) == 0


def test_a_reader_that_is_gone_leaves_no_mapping(pair, tmp_path):
  reader = IndexedReader(pair)
  assert mapped_files(tmp_path) == 0  # opening maps nothing yet
  reader[0]
  assert mapped_files(tmp_path) == 2
  del reader
  gc.collect()
  assert mapped_files(tmp_path) == 0


@WAYS
def test_open_files_are_bounded(tmp_path, mmap):
  set_max_open_files(6)
  readers = [
    IndexedReader(
      write_pair(tmp_path / f"p{i}", [[[i, i + 1]], [[i + 2]]]), mmap=mmap
    )
    for i in range(20)
  ]
  before = num_open_files()
  for _ in range(2):
    for i, reader in enumerate(readers):
      assert reader[0].tolist() == [i, i + 1]
      assert reader.get(1).tolist() == [i + 2]
      assert mapped_files(tmp_path) <= (6 if mmap else 3)
      assert num_open_files() <= before + 6
  assert mapped_files(tmp_path) == (6 if mmap else 3)

  set_max_open_files(2)
  assert mapped_files(tmp_path) == (2 if mmap else 1)
  # The one used last stayed; a view pins its own beyond the bound.
  views = [reader[0] for reader in readers[:5]]
  assert [view.tolist() for view in views] == [[i, i + 1] for i in range(5)]


def test_the_least_recently_used_pair_is_closed_first(tmp_path):
  set_max_open_files(4)
  readers = [
    IndexedReader(write_pair(tmp_path / name, [[[1]]])) for name in "abc"
  ]
  readers[0][0], readers[1][0], readers[0][0], readers[2][0]
  maps = Path("/proc/self/maps").read_text()
  assert [f"{tmp_path}/{name}.bin" in maps for name in "abc"] == [
    True,
    False,
    True,
  ]


@pytest.mark.parametrize("number", [1, 0, -5])
def test_a_bound_without_room_for_a_pair_is_refused(number):
  with pytest.raises(ValueError, match=rf"max_open_files is {number}, a pair"):
    set_max_open_files(number)


@WAYS
@pytest.mark.parametrize("suffix", ["idx", "bin"])
def test_files_that_changed_are_not_opened_again(tmp_path, mmap, suffix):
  set_max_open_files(2)
  one = write_pair(tmp_path / "one", [[[1, 2]]])
  first = IndexedReader(one, mmap=mmap)
  view = first[0]
  other = IndexedReader(write_pair(tmp_path / "other", [[[3]]]), mmap=mmap)
  assert other[0].tolist() == [3]

  size = Path(f"{one}.{suffix}").stat().st_size
  with Path(f"{one}.{suffix}").open("ab") as file:
    file.write(b"\0")
  message = (
    rf"one changed since .* \.{suffix} had {size} bytes and has {size + 1}"
  )
  with pytest.raises(ValueError, match=message):
    first[0]
  with pytest.raises(ValueError, match=message):
    first.content_digest()
  assert view.tolist() == [1, 2]


def test_files_written_again_in_the_same_size_are_not_opened_again(tmp_path):
  prefix = write_pair(tmp_path / "pair", [[[1, 2]]])
  reader = IndexedReader(prefix)
  write_pair(tmp_path / "pair", [[[3, 4]]])
  os.utime(f"{prefix}.bin", ns=(1, 1))
  with pytest.raises(ValueError, match=r"the \.bin was written again"):
    reader[0]


def test_a_bin_that_is_cut_while_it_is_read_is_named(pair):
  reader = IndexedReader(pair, mmap=False)
  assert reader[2].tolist() == [5, 6]
  os.truncate(f"{pair}.bin", 9)
  assert reader[0].tolist() == [1, 2, 3]
  with pytest.raises(
    ValueError,
    match=rf"^{re.escape(pair)}\.bin ends at byte 9, 3 bytes short.*copy it",
  ):
    reader[2]


def test_a_reader_can_be_pickled_and_copied(pair):
  reader = IndexedReader(pair)
  reader[0]
  other = pickle.loads(pickle.dumps(reader))
  del reader
  gc.collect()
  assert other[0].tolist() == [1, 2, 3]
  assert other.content_digest() == IndexedReader(pair).content_digest()


def test_the_working_folder_may_change(tmp_path, monkeypatch):
  write_pair(tmp_path / "pair", [[[7]]])
  monkeypatch.chdir(tmp_path)
  reader = IndexedReader("pair")
  monkeypatch.chdir("/")
  assert reader[0].tolist() == [7]
  assert reader.prefix == "pair"


def test_threads_share_a_small_set_of_open_pairs(tmp_path):
  set_max_open_files(4)
  readers = [
    IndexedReader(write_pair(tmp_path / f"p{i}", [[[i] * 50]]))
    for i in range(6)
  ]
  wrong = []

  def work(seed: int) -> None:
    for i in np.random.default_rng(seed).integers(0, 6, 300):
      if readers[i][0].tolist() != [i] * 50:
        wrong.append(i)

  threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert wrong == []
  assert len(readers) == 6


def test_a_fork_may_read_although_the_lock_was_held(pair):
  reader = IndexedReader(pair)
  fork = multiprocessing.get_context("fork")
  queue = fork.Queue()
  held, done = threading.Event(), threading.Event()

  def hold() -> None:
    with open_pairs.OPEN_PAIRS._lock:
      held.set()
      done.wait(20)

  thread = threading.Thread(target=hold)
  thread.start()
  held.wait(20)
  process = fork.Process(target=lambda: queue.put(reader[1].tolist()))
  process.start()
  try:
    assert queue.get(timeout=20) == [4]
  finally:
    done.set()
    thread.join()
    process.kill()
    process.join()


def test_digest_tells_corpora_apart_but_not_places(tmp_path):
  documents = [[[1, 2, 3]], [[4]]]
  digest = IndexedReader(write_pair(tmp_path / "a", documents)).content_digest()
  moved = write_pair(tmp_path / "b", documents)
  os.utime(f"{moved}.idx", ns=(1, 1))
  assert IndexedReader(moved).content_digest() == digest
  assert len(digest) == 32 and int(digest, 16) >= 0
  other = write_pair(tmp_path / "c", [[[1, 2, 3]], [[5]]])
  assert IndexedReader(other).content_digest() != digest
  signed = write_pair(tmp_path / "d", documents, dtype="int16")
  assert IndexedReader(signed).content_digest() != digest


def test_digest_of_a_long_corpus_covers_both_ends(tmp_path):
  tokens = np.arange(100_000) % 30_000
  digests = set()
  for change in (None, 0, 99_999):
    changed = tokens.copy()
    if change is not None:
      changed[change] = 31_000
    prefix = write_pair(tmp_path / f"p{change}", [[changed.tolist()]])
    digests.add(IndexedReader(prefix).content_digest())
  assert len(digests) == 3


@WAYS
def test_kernels_read_the_same_pair(pair, tmp_path, mmap):
  reader = IndexedReader(pair, mmap=mmap)
  file = reader.token_file()
  assert (file.num_sequences, file.num_tokens_bytes) == (3, 12)
  assert reader.token_file() is file

  set_max_open_files(2)
  other = IndexedReader(write_pair(tmp_path / "other", [[[9]]]), mmap=mmap)
  other[0]
  assert reader.token_file() is not file
  assert file.num_sequences == 3


def test_a_prefix_without_the_key_that_preparation_adds_is_recognised(tmp_path):
  write_pair(tmp_path / "a_text_document", [[[1, 2]]])
  with pytest.raises(FileNotFoundError, match=r"Did you mean '.*/a_text_doc"):
    IndexedReader(tmp_path / "a")
