"""Reading planned rows in C++ against lists of tokens."""

import itertools
import os
import tempfile
import threading

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from kernel_files import corpora, token_file

from hpgrain import _kernels

ZERO = np.zeros(1, np.int32)
CORPUS = twins.Corpus([[1, 2, 3], [], [4, 5], [6, 7, 8]], [0, 1, 2, 3, 4], 8)


def gather(rows, files, *, begin=0, end=8, pad_id=0, vocab_size=0, **change):
  """Gathers rows of (source, sequence, offset, length, boundary)."""
  columns = dict(
    zip(
      ("row_splits", "source", "sequence", "offset", "length"),
      twins.to_plan(rows, None),
      strict=False,
    )
  )
  out = change.pop(
    "out", np.full((len(rows), max(end - begin, 0)), -7, np.int32)
  )
  sources = change.pop("sources", np.array(sorted(files), np.int32))
  columns.update(change)
  bad = _kernels.gather(
    **columns,
    sources=sources,
    files=[files[key] for key in sorted(files)],
    begin=begin,
    end=end,
    pad_id=pad_id,
    vocab_size=vocab_size,
    out=out,
  )
  return bad, out


def piece(sequence=0, offset=0, length=1, source=0):
  return (source, sequence, offset, length, True)


@st.composite
def rows_and_corpora(draw):
  """Up to three corpora of any dtypes and rows of pieces of them."""
  numbers = draw(st.sets(st.integers(0, 40), min_size=1, max_size=3))
  sets = {
    n: draw(corpora(max_sequences=6).filter(lambda c: c.lengths.any()))
    for n in numbers
  }

  @st.composite
  def one_piece(draw):
    source = draw(st.sampled_from(sorted(sets)))
    full = [s for s, t in enumerate(sets[source].sequences) if t]
    sequence = draw(st.sampled_from(full))
    length = len(sets[source].sequences[sequence])
    offset = draw(st.integers(0, length - 1))
    return (
      source,
      sequence,
      offset,
      draw(st.integers(1, length - offset)),
      draw(st.booleans()),
    )

  rows = draw(st.lists(st.lists(one_piece(), max_size=4), max_size=4))
  return rows, sets


def pread_file(corpus):
  """The same pair, read by descriptor; the owner closes it when collected."""
  owner = tempfile.TemporaryFile(buffering=0)
  owner.write(corpus.tokens.tobytes())
  tokens = (owner.fileno(), corpus.tokens.nbytes, owner)
  return token_file(corpus, tokens=tokens)


@given(rows_and_corpora(), st.data())
def test_gather_equals_its_twin(case, data):
  begin = data.draw(st.integers(0, 9))
  width = data.draw(st.integers(0, 9))
  pad_id = data.draw(st.sampled_from([0, 5]))
  open_file = data.draw(st.sampled_from([token_file, pread_file]))
  rows, sets = case
  files = {number: open_file(corpus) for number, corpus in sets.items()}
  before = _kernels.gathered_bytes()
  bad, out = gather(
    rows, files, begin=begin, end=begin + width, pad_id=pad_id, vocab_size=100
  )
  expected, num_bytes = [], 0
  for row in rows:
    tokens = twins.row_tokens(row, sets)
    window = tokens[begin : begin + width]
    expected.append(window + [pad_id] * (width - len(window)))
    sizes = [sets[p[0]].itemsize for p in row for _ in range(p[3])]
    num_bytes += sum(sizes[begin : begin + width])
  assert bad == (-1, -1, 0)
  assert out.tolist() == expected
  assert _kernels.gathered_bytes() - before == num_bytes


@given(rows_and_corpora(), st.integers(-1, 100))
def test_find_id_equals_its_twin(case, wanted):
  rows, sets = case
  files = {number: token_file(corpus) for number, corpus in sets.items()}
  before = _kernels.scanned_bytes(), _kernels.gathered_bytes()
  splits, positions = _kernels.find_id(
    *twins.to_plan(rows, None)[:5],
    np.array(sorted(files), np.int32),
    [files[number] for number in sorted(files)],
    wanted,
  )
  tokens = [twins.row_tokens(row, sets) for row in rows]
  places = [[i for i, t in enumerate(row) if t == wanted] for row in tokens]
  assert splits.tolist() == [0, *itertools.accumulate(map(len, places))]
  assert positions.tolist() == [p for row in places for p in row]
  num_bytes = sum(sets[p[0]].itemsize * p[3] for row in rows for p in row)
  assert _kernels.scanned_bytes() - before[0] == num_bytes
  assert _kernels.gathered_bytes() == before[1]


@pytest.mark.parametrize("code", sorted(twins.DTYPES))
def test_every_dtype_reads_its_whole_range(code):
  info = np.iinfo(twins.DTYPES[code])
  top = min(info.max, 2**31 - 1)
  # More tokens than one wide instruction takes, and an odd number of them.
  tokens = [0, 1, top - 1, top] * 17 + [top]
  files = {0: token_file(twins.Corpus([tokens], [0, 1], code))}
  bad, out = gather([[piece(length=69)]], files, end=69)
  assert bad == (-1, -1, 0)
  assert out[0].tolist() == tokens


@pytest.mark.parametrize("place", [0, 1, 31, 63, 68])
@pytest.mark.parametrize(
  ("code", "wrong"),
  [
    (1, 200),
    (2, -1),
    (3, -(2**15)),
    (3, 100),
    (4, -1),
    (4, -(2**31)),
    (4, 2**31 - 1),
    (5, 2**31),
    (5, 2**32 + 5),
    (5, -(2**63)),
    (5, 2**63 - 1),
    (5, -1),
    (8, 65535),
  ],
)
def test_an_id_outside_the_vocabulary_is_reported(code, wrong, place):
  tokens = [5] * 69
  tokens[place] = wrong
  files = {0: token_file(twins.Corpus([[1, 2], tokens], [0, 1, 2], code))}
  rows = [[piece(0, 0, 2)], [piece(0, 1, 1), piece(1, 0, 69)]]
  bad, _ = gather(rows, files, end=70, vocab_size=100)
  assert bad == (2, place + 1, wrong)


@pytest.mark.parametrize(
  ("wrong", "vocab_size", "is_bad"),
  [
    (-1, 0, True),
    (2**31, 0, True),
    (2**31 - 1, 0, False),
    (2**31 - 1, 2**31, False),
    (2**31 - 1, 2**31 - 1, True),
    (0, 1, False),
    (1, 1, True),
  ],
)
def test_where_the_vocabulary_ends(wrong, vocab_size, is_bad):
  files = {0: token_file(twins.Corpus([[wrong]], [0, 1], 5))}
  bad, out = gather([[piece()]], files, end=1, vocab_size=vocab_size)
  assert bad == ((0, 0, wrong) if is_bad else (-1, -1, 0))
  if not is_bad:
    assert out.tolist() == [[wrong]]


def test_only_the_window_is_looked_at_for_bad_ids():
  files = {0: token_file(twins.Corpus([[9, 1, 2, 9]], [0, 1], 4))}
  row = [[piece(0, 0, 4)]]
  assert gather(row, files, begin=1, end=3, vocab_size=9)[0] == (-1, -1, 0)
  assert gather(row, files, begin=1, end=4, vocab_size=9)[0] == (0, 3, 9)


@pytest.mark.parametrize(
  ("wrong", "message"),
  [
    (piece(sequence=4), "piece 1 of source 0 reads sequence 4; the file .* 4"),
    (piece(sequence=-1), "piece 1 of source 0 reads sequence -1"),
    (piece(sequence=2**63 - 1), "reads sequence 9223372036854775807"),
    (piece(length=4), "reads 4 tokens from token 0 of sequence 0, which has 3"),
    (piece(offset=3), "reads 1 tokens from token 3 of sequence 0"),
    (piece(offset=-1), "from token -1 of sequence 0"),
    (piece(length=-1), "reads -1 tokens"),
    (piece(offset=2**63 - 1), "from token 9223372036854775807"),
    (
      piece(sequence=1),
      "reads 1 tokens from token 0 of sequence 1, which .* 0",
    ),
    (piece(source=1), "piece 1 reads source 1, for which no file"),
  ],
)
def test_pieces_outside_the_file_are_named(wrong, message):
  # Outside the window too.
  for end in (1, 8):
    with pytest.raises(IndexError, match=message):
      gather([[piece(), wrong]], {0: token_file(CORPUS)}, end=end)


@pytest.mark.parametrize("pointer", [-1, 11, 12, 2**62, 2**63 - 1, -(2**63)])
def test_pointers_outside_the_bin_are_named(pointer):
  pointers = CORPUS.pointers
  pointers[3] = pointer
  file = token_file(CORPUS, pointers=pointers)
  with pytest.raises(IndexError, match=f"at byte {pointer}; the .bin has 16"):
    gather([[piece(3, 0, 3)]], {0: file})


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"begin": -1}, r"the window \[-1, 8\)"),
    ({"begin": 9, "end": 8, "out": np.zeros((1, 0), np.int32)}, "no range"),
    ({"vocab_size": -1}, "vocab_size is -1"),
    ({"vocab_size": 2**31 + 1}, "vocab_size is 2147483649"),
    ({"out": np.zeros((1, 7), np.int32)}, "out must be a writeable"),
    ({"out": np.zeros((0, 8), np.int32)}, "with 1 rows"),
    ({"out": np.zeros((2, 8), np.int32)}, "out has 16 elements"),
    ({"out": np.zeros((1, 8), np.int64)}, "array of int32"),
    ({"out": np.zeros((1, 16), np.int32)[:, ::2]}, "C-contiguous"),
    ({"out": np.broadcast_to(np.int32(1), (1, 8))}, "writeable"),
    ({"sources": np.array([0, 1], np.int32)}, "2 sources were given 1 files"),
    ({"row_splits": np.array([0, 2])}, "row_splits must begin with 0"),
    ({"row_splits": np.array([1, 1])}, "row_splits must begin with 0"),
    ({"row_splits": np.zeros(0, np.int64)}, "got 0 values"),
    ({"offset": np.zeros(2, np.int64)}, "one value a piece"),
    ({"offset": np.zeros((1, 1), np.int64)}, "offset must have one dimension"),
  ],
)
def test_gather_refuses_arrays_that_do_not_fit(change, message):
  with pytest.raises(ValueError, match=message):
    gather([[piece()]], {0: token_file(CORPUS)}, **change)


def test_gather_refuses_sources_that_do_not_rise_and_no_file():
  file = token_file(CORPUS)
  with pytest.raises(ValueError, match="sources must rise; 1 comes before 1"):
    gather([[piece()]], {0: file, 1: file}, sources=np.array([1, 1], np.int32))
  with pytest.raises(ValueError, match="the file of source 0 is None"):
    gather([[piece()]], {0: None})


def test_rows_of_no_piece_are_padding():
  bad, out = gather([[], []], {}, end=3, pad_id=9)
  assert bad == (-1, -1, 0)
  assert out.tolist() == [[9, 9, 9]] * 2


@pytest.mark.parametrize("code", [6, 7])
def test_floats_are_not_token_ids(code):
  file = _kernels.TokenFile(
    np.ones(1, np.int32),
    np.zeros(1, np.int64),
    np.zeros(1, np.int64),
    code,
    np.zeros(8, np.uint8),
  )
  with pytest.raises(ValueError, match=f"dtype code {code}, a float"):
    gather([[piece()]], {0: file})


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"lengths": np.zeros(3, np.int32)}, "one value a sequence; got 3 and 4"),
    ({"lengths": np.zeros(4, np.int64)}, "lengths must be .* 32-bit integers"),
    ({"pointers": np.zeros(4, np.int32)}, "pointers must be .* 64-bit"),
    ({"pointers": np.zeros(8, np.int64)[::2]}, "must be a contiguous array"),
    ({"document_indices": np.zeros((1, 1), np.int64)}, "one dimension"),
    ({"pointers": np.zeros(4, ">i8")}, "pointers must be"),
    ({"dtype_code": 0}, "dtype_code is 0; the format has 1 to 8"),
    ({"dtype_code": 9}, "dtype_code is 9"),
    ({"tokens": np.zeros(4, np.int8)}, "tokens must be"),
    ({"tokens": b"abc"}, "tokens must be a uint8 array or the tuple"),
    ({"tokens": (3,)}, "got 1 items"),
    ({"tokens": (-1, 4)}, "fd is -1 and num_bytes 4"),
    ({"tokens": (3, -4)}, "fd is 3 and num_bytes -4"),
  ],
)
def test_token_file_refuses(change, message):
  arguments = {
    "lengths": CORPUS.lengths,
    "pointers": CORPUS.pointers,
    "document_indices": np.arange(5),
    "dtype_code": 8,
    "tokens": CORPUS.tokens.view(np.uint8),
  }
  with pytest.raises(ValueError, match=message):
    _kernels.TokenFile(**{**arguments, **change})


def test_token_file_keeps_its_arrays_alive():
  file = token_file(
    twins.Corpus([list(range(50))] * 2000, list(range(2001)), 8)
  )
  junk = [np.full(200_000, 255, np.uint8) for _ in range(4)]
  rows = [[piece(s, 0, 50)] for s in range(2000)]
  _, out = gather(rows, {0: file}, end=50)
  assert (out == np.arange(50)).all()
  assert (file.num_sequences, file.num_tokens_bytes) == (2000, 200_000)
  assert len(junk) == 4


def test_a_bin_cut_short_after_opening_is_an_os_error(tmp_path):
  path = tmp_path / "tokens.bin"
  path.write_bytes(CORPUS.tokens.tobytes())
  with path.open("rb+") as opened:
    file = token_file(CORPUS, tokens=(opened.fileno(), 16))
    os.truncate(path, 13)
    message = "6 bytes at byte 10 were asked for, 3 were there"
    with pytest.raises(OSError, match=message):
      gather([[piece(3, 0, 3)]], {0: file})
  with pytest.raises(OSError, match="Bad file descriptor"):
    gather([[piece(3, 0, 3)]], {0: file})


def test_threads_may_gather_from_one_file():
  corpus = twins.Corpus([[7] * 999, [8] * 999], [0, 1, 2], 8)
  file = token_file(corpus)
  wrong = []

  def work(sequence):
    for _ in range(100):
      _, out = gather([[piece(sequence, 0, 999)]] * 4, {0: file}, end=999)
      if not (out == 7 + sequence).all():
        wrong.append(sequence)

  threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not wrong


def test_reset_gathered_bytes():
  gather([[piece(0, 0, 3)]], {0: token_file(CORPUS)})
  assert _kernels.gathered_bytes() >= 6
  _kernels.reset_gathered_bytes()
  assert _kernels.gathered_bytes() == 0
