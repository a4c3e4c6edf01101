r"""Damages `.idx`/`.bin` pairs at random and reads what is left of them.

Whatever was done to a pair, reading it must raise a ValueError or give the
tokens that an independent parser finds in the same bytes; a sound pair must
not be refused. Both ways of reading and the C++ kernels are tried.

python tests/fuzz_indexed.py --mutants=100000 --seed=1
"""

import argparse
import collections
import contextlib
import dataclasses
import random
import struct
import tempfile
import time
from pathlib import Path

import numpy as np

from hpgrain import _kernels
from hpgrain.sources.indexed import IndexedReader

MAGIC = b"MMIDIDX\0\0"
# code -> struct format of one token, and its bytes.
FORMATS = {
  1: ("B", 1),
  2: ("b", 1),
  3: ("h", 2),
  4: ("i", 4),
  5: ("q", 8),
  6: ("d", 8),
  7: ("f", 4),
  8: ("H", 2),
}
FLOATS = (6, 7)
EXTREMES = (
  0,
  1,
  -1,
  2**15,
  2**31 - 1,
  -(2**31),
  2**32,
  2**61,
  2**62 - 1,
  2**63 - 1,
  -(2**63),
  2**64 - 1,
)
SEQ_LENGTH = 4


@dataclasses.dataclass
class Parsed:
  """What a plain reading of the format finds in the bytes of a pair."""

  code: int
  lengths: tuple[int, ...]
  pointers: tuple[int, ...]
  documents: tuple[int, ...]
  modes: tuple[int, ...] | None
  tokens: bytes

  @property
  def itemsize(self) -> int:
    return FORMATS[self.code][1]

  def end(self, i: int) -> int:
    return self.pointers[i] + self.lengths[i] * self.itemsize

  def consistent(self, i: int) -> bool:
    """Whether sequence i lies right between its neighbours."""
    begins = self.end(i - 1) if i else 0
    last = i + 1 == len(self.lengths)
    ends = self.end(i) if last else self.pointers[i + 1]
    return (
      self.lengths[i] >= 0
      and self.pointers[i] == begins
      and self.end(i) == ends
      and 0 <= begins <= ends <= len(self.tokens)
    )

  def sound(self) -> bool:
    """Whether all of the pair is as the format wants it."""
    return (
      all(self.consistent(i) for i in range(len(self.lengths)))
      and self.documents[0] == 0
      and self.documents[-1] == len(self.lengths)
      and list(self.documents) == sorted(self.documents)
    )

  def sequence(self, i: int) -> bytes:
    return self.tokens[self.pointers[i] : self.end(i)]


def parse(index: bytes, tokens: bytes) -> Parsed | None:
  """Reads a pair, or returns None where the bytes are not an `.idx`."""
  if len(index) < 34 or index[:9] != MAGIC:
    return None
  version, code, count, num_documents = struct.unpack_from("<QBQQ", index, 9)
  if version != 1 or code not in FORMATS or num_documents == 0:
    return None
  plain = 34 + 12 * count + 8 * num_documents
  if len(index) not in (plain, plain + count):
    return None
  return Parsed(
    code,
    struct.unpack_from(f"<{count}i", index, 34),
    struct.unpack_from(f"<{count}q", index, 34 + 4 * count),
    struct.unpack_from(f"<{num_documents}q", index, 34 + 12 * count),
    None
    if len(index) == plain
    else struct.unpack_from(f"<{count}b", index, plain),
    tokens,
  )


def make_pair(rng: random.Random) -> tuple[bytearray, bytearray]:
  """A sound pair of random documents, as (index, tokens)."""
  code = rng.choice(list(FORMATS))
  itemsize = FORMATS[code][1]
  count = rng.choice((0, 1, 2, 3, 5, 9))
  lengths = [rng.choice((0, 1, 2, 3, 7)) for _ in range(count)]
  pointers = [itemsize * sum(lengths[:i]) for i in range(count)]
  documents = sorted(
    [0, count, *(rng.randint(0, count) for _ in range(rng.randint(0, 5)))]
  )
  index = bytearray(MAGIC)
  index += struct.pack("<QBQQ", 1, code, count, len(documents))
  index += struct.pack(f"<{count}i", *lengths)
  index += struct.pack(f"<{count}q", *pointers)
  index += struct.pack(f"<{len(documents)}q", *documents)
  if rng.random() < 0.3:
    index += bytes(rng.randint(0, 1) for _ in range(count))
  return index, bytearray(rng.randbytes(itemsize * sum(lengths)))


def fields(index: bytearray) -> list[tuple[int, int]]:
  """(offset, bytes) of every number in a sound `.idx`."""
  count, documents = struct.unpack_from("<QQ", index, 18)
  at = 34
  found = [(9, 8), (17, 1), (18, 8), (26, 8)]
  for size, number in ((4, count), (8, count), (8, documents)):
    found += [(at + size * i, size) for i in range(number)]
    at += size * number
  return found


def set_field(
  index: bytearray, field: tuple[int, int], rng: random.Random
) -> None:
  """Gives one number another value: near by, extreme, or another's."""
  at, size = field
  old = int.from_bytes(index[at : at + size], "little")
  other_at, other_size = rng.choice(fields_within(index, size))
  new = rng.choice(
    (
      old + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8)),
      rng.choice(EXTREMES),
      int.from_bytes(index[other_at : other_at + other_size], "little"),
    )
  )
  index[at : at + size] = (new % 256**size).to_bytes(size, "little")


def fields_within(index: bytearray, size: int) -> list[tuple[int, int]]:
  return [(at, size) for at in range(0, max(1, len(index) - size), size)]


def move_border(index: bytearray, rng: random.Random) -> None:
  """Moves tokens from a sequence to the next: mostly a sound pair again."""
  count, code = *struct.unpack_from("<Q", index, 18), index[17]
  if count < 2 or code not in FORMATS:
    return
  i = rng.randrange(count - 1)
  for at, form, change in (
    (34 + 4 * i, "<i", 1),
    (34 + 4 * i + 4, "<i", -1),
    (34 + 4 * count + 8 * (i + 1), "<q", FORMATS[code][1]),
  ):
    if at + struct.calcsize(form) > len(index):
      return
    (old,) = struct.unpack_from(form, index, at)
    if abs(old + change) < 2**31:
      struct.pack_into(form, index, at, old + change)


def cut_or_extend(data: bytearray, rng: random.Random) -> None:
  if rng.random() < 0.5:
    del data[rng.randint(0, len(data)) :]
  else:
    data += rng.randbytes(rng.choice((1, 2, 4, 8, 12, 40)))


def mutate(index: bytearray, tokens: bytearray, rng: random.Random) -> None:
  """Does one to three random damages to a pair, in place."""
  known = fields(index)
  for _ in range(rng.choice((1, 1, 1, 2, 3))):
    kind = rng.randrange(8)
    if kind == 0 and index:
      index[rng.randrange(len(index))] ^= 1 << rng.randrange(8)
    elif kind == 1 and index:
      index[rng.randrange(len(index))] = rng.randrange(256)
    elif kind in (2, 3, 4):
      field = rng.choice(known)
      if sum(field) <= len(index):
        set_field(index, field, rng)
    elif kind == 5 and len(index) >= 34:
      move_border(index, rng)
    elif kind == 6:
      cut_or_extend(index, rng)
    elif kind == 7:
      cut_or_extend(tokens, rng)


def check_pair(prefix: str, parsed: Parsed | None, *, mmap: bool) -> str:
  """Reads a pair on disk and compares it with what was parsed.

  Returns:
    "refused" at open, "partly" readable, or "read".
  """
  try:
    reader = IndexedReader(prefix, mmap=mmap)
  except ValueError:
    if parsed is not None and parsed.sound():
      raise AssertionError("a sound pair was refused") from None
    return "refused"
  assert parsed is not None, "not an .idx, but it was opened"
  with contextlib.closing(reader):
    check_arrays(reader, parsed)
    refusals = check_sequences(reader, parsed)
    check_verify(reader, parsed)
    if parsed.code not in FLOATS:
      check_rows(reader, parsed)
  return "partly" if refusals else "read"


def check_arrays(reader: IndexedReader, parsed: Parsed) -> None:
  assert len(reader) == len(parsed.lengths)
  assert tuple(reader.lengths.tolist()) == parsed.lengths
  assert tuple(reader.pointers.tolist()) == parsed.pointers
  assert tuple(reader.document_indices.tolist()) == parsed.documents
  if reader.modes is None:
    assert not parsed.modes
  else:
    assert tuple(reader.modes.tolist()) == parsed.modes


def check_sequences(reader: IndexedReader, parsed: Parsed) -> int:
  """Reads every sequence, whole and in part; counts those refused."""
  refusals = 0
  for i in range(len(parsed.lengths)):
    try:
      whole = reader[i]
      tail = reader.get(i, len(whole) // 2)
    except ValueError:
      assert not parsed.consistent(i), f"sound sequence {i} was refused"
      refusals += 1
      continue
    assert parsed.consistent(i), f"damaged sequence {i} was read"
    expected = parsed.sequence(i)
    assert whole.tobytes() == expected
    assert tail.tobytes() == expected[len(whole) // 2 * parsed.itemsize :]
  return refusals


def check_verify(reader: IndexedReader, parsed: Parsed) -> None:
  try:
    reader.verify()
  except ValueError:
    assert not parsed.sound(), "a sound pair was not verified"
  else:
    assert parsed.sound(), "a damaged pair was verified"


def check_rows(reader: IndexedReader, parsed: Parsed) -> None:
  """Plans and gathers rows by the kernels, as training does."""
  num_tokens = reader.num_tokens
  num_rows = (num_tokens - 1) // SEQ_LENGTH
  # Counts that damage has blown up would make rows without end.
  if not 0 < num_rows < 100:
    return
  form = FORMATS[parsed.code][0]
  rows = np.arange(num_rows)
  out = np.full((num_rows, SEQ_LENGTH + 1), -7, np.int32)
  try:
    file = reader.token_file()
    stable = _kernels.StableRows(
      0,
      len(reader),
      SEQ_LENGTH,
      1,
      num_rows,
      num_tokens,
      shuffle=False,
      keep_last=False,
    )
    plan = stable.plan(file, rows, 0)
    error, *_ = _kernels.gather(
      *plan[:5], np.array([0], np.int32), [file], 0, SEQ_LENGTH + 1, 0, 0, out
    )
  except (ValueError, IndexError):
    assert not parsed.sound(), "rows of a sound pair were refused"
    return
  flat = struct.unpack_from(f"<{num_tokens}{form}", parsed.tokens)
  expected = np.array(
    [flat[r * SEQ_LENGTH : (r + 1) * SEQ_LENGTH + 1] for r in range(num_rows)],
    np.int64,
  )
  if error >= 0:
    # Tokens are random bytes: some cannot be ids.
    assert ((expected < 0) | (expected >= 2**31)).any()
    return
  np.testing.assert_array_equal(out, expected)


def fuzz(
  num_mutants: int, *, seed: int, folder: Path
) -> collections.Counter[str]:
  """Makes and checks mutants; returns how many had which outcome.

  The outcome of a mutant is the same whether its `.bin` is mapped or not.
  """
  rng = random.Random(seed)
  outcomes: collections.Counter[str] = collections.Counter()
  prefix = str(folder / "mutant")
  for number in range(num_mutants):
    index, tokens = make_pair(rng)
    mutate(index, tokens, rng)
    Path(f"{prefix}.idx").write_bytes(index)
    Path(f"{prefix}.bin").write_bytes(tokens)
    parsed = parse(bytes(index), bytes(tokens))
    try:
      mapped = check_pair(prefix, parsed, mmap=True)
      read = check_pair(prefix, parsed, mmap=False)
      assert mapped == read
    except BaseException as error:
      error.add_note(f"mutant {number} of seed {seed}: {bytes(index)!r}")
      raise
    outcomes[mapped] += 1
  return outcomes


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--mutants", type=int, default=2000)
  parser.add_argument("--seed", type=int, default=0)
  args = parser.parse_args()
  began = time.monotonic()
  with tempfile.TemporaryDirectory() as folder:
    outcomes = fuzz(args.mutants, seed=args.seed, folder=Path(folder))
  share = {name: f"{n / args.mutants:.1%}" for name, n in outcomes.items()}
  print(
    f"{args.mutants} mutants in {time.monotonic() - began:.0f} s, no crash, "
    f"no wrong token: {share.get('refused', '0%')} refused when opened, "
    f"{share.get('partly', '0%')} where a damaged sequence was read, "
    f"{share.get('read', '0%')} read as what their bytes say"
  )


if __name__ == "__main__":
  main()
