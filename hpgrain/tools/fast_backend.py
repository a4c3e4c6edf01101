"""Texts in, ids out, by gigatoken: tens of times faster than Hugging Face.

The ids must be those of Hugging Face, bit for bit. Where the two are known to
differ, a text goes to Hugging Face instead:

  a character that Unicode gained lately   the two were built with different
                                           tables of letters and marks
  text that is not normalized (NFC), for   they put several combining marks
  a tokenizer that normalizes              in order differently
"""

import functools
import importlib.metadata
import itertools
import json
import mmap
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgrain import _kernels
from hpgrain.tools.reference_backend import EncodeFlat, joined_rows
from hpgrain.tools.texts import Texts

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

# What a process may grow by before gigatoken is made to forget.
CACHE_BYTES = 160 << 20
# Text after which that is looked at: it grows by seven times as much at most.
_LOOK_BYTES = 2 << 20
_STATM = Path("/proc/self/statm")
# Flags of code points.
_UNASSIGNED, _COMPOSES = 1, 2
_BLOCK = 256
# [0, 0x40000) and the tags and variation selectors; what lies between has
# never been assigned, what lies behind is private use.
_PLANES = (range(0x40000), range(0xE0000, 0xF0000))
_NUM_CODE_POINTS = 0x110000


def version() -> str | None:
  """The installed gigatoken's version; None without one."""
  try:
    return importlib.metadata.version("gigatoken")
  except importlib.metadata.PackageNotFoundError:
    return None


def fast_encoder(tokenizer_json: str) -> EncodeFlat:
  """Builds gigatoken's encoder of a Hugging Face tokenizer.

  Args:
    tokenizer_json: the content of a tokenizer.json.

  Raises:
    ImportError: gigatoken is not installed.
    ValueError: it has no such tokenizer.
  """
  loaded = _load(tokenizer_json)

  def encode(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    loaded.forget_if_large(len(texts.data))
    # One call a text: its call for a batch builds tables of its own first, for
    # half a second and 80 MB, and takes a millisecond to wrap what it returns.
    encode_one = loaded.backend.encode
    data = texts.data.tobytes()
    return joined_rows(
      [encode_one(data[i:k]) for i, k in itertools.pairwise(texts.bounds())]
    )

  return encode


class _Loaded:
  """A tokenizer of gigatoken, whose memory stays bounded.

  It remembers the ids of every word it meets, and has no way to forget: twenty
  million different ones are a gigabyte. So it is made anew.
  """

  def __init__(self, tokenizer_json: str) -> None:
    self._json = tokenizer_json
    self.backend = _backend(tokenizer_json)
    self._before = self._after = _resident_bytes()
    self._unlooked = 0

  def forget_if_large(self, num_bytes: int) -> None:
    """Builds it again if this process has grown a lot since it was built.

    Args:
      num_bytes: of text that comes now.
    """
    self._unlooked += num_bytes
    if self._unlooked < _LOOK_BYTES:
      return
    self._unlooked = 0
    now = _resident_bytes()
    # The second since not all that is given up goes back to the system.
    if (
      now - self._before > CACHE_BYTES and now - self._after > CACHE_BYTES // 4
    ):
      self.backend = None
      self.backend = _backend(self._json)
      self._after = _resident_bytes()


def _resident_bytes() -> int:
  """Memory of this process; 0 where the system does not tell."""
  try:
    pages = int(_STATM.read_text().split()[1])
  except OSError:
    return 0
  return pages * mmap.PAGESIZE


@functools.lru_cache(maxsize=1)
def _load(tokenizer_json: str) -> _Loaded:
  # A second for a large vocabulary, and who tried it uses it next.
  return _Loaded(tokenizer_json)


def _backend(tokenizer_json: str) -> Any:
  import gigatoken

  try:
    return gigatoken.Tokenizer.from_json(tokenizer_json).backend
  except Exception as error:
    # Of several types, by what it is that is not supported.
    why = str(error).partition("\n")[0]
    raise ValueError(f"gigatoken does not support it: {why}") from error


def normalizes(tokenizer: "PreTrainedTokenizerBase") -> bool:
  """Whether a tokenizer's Rust backend changes characters before encoding."""
  normalizer = tokenizer.backend_tokenizer.normalizer
  return normalizer is not None and _changes(
    json.loads(normalizer.__getstate__())
  )


def safe_texts(texts: Texts, *, normalizes: bool) -> np.ndarray:
  """bool[texts]: whether a text may go to gigatoken at all.

  Args:
    texts: the batch.
    normalizes: whether the tokenizer changes characters first (NFC).
  """
  flags = _kernels.text_flags(texts.data, texts.splits, _flags())
  safe = flags & _UNASSIGNED == 0
  if normalizes:
    for place in np.flatnonzero(safe & (flags & _COMPOSES != 0)):
      text = texts.bytes_of(place).decode()
      safe[place] = unicodedata.is_normalized("NFC", text)
  return safe


def doubtful_places(text: str, *, normalizes: bool) -> np.ndarray:
  """int64[characters]: places in a text of those that make it unsafe.

  And of others that may: of characters that compose, which ones make a text
  another than its normal form is not looked at.
  """
  points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
  wanted = _UNASSIGNED | (_COMPOSES if normalizes else 0)
  return np.flatnonzero(_flags()[points] & wanted)


def _changes(normalizer: dict[str, Any]) -> bool:
  if normalizer.get("type") == "Sequence":
    return any(map(_changes, normalizer.get("normalizers", [])))
  return True


@functools.cache
def _flags() -> np.ndarray:
  """uint8[0x110000]: what there is to know of each code point.

  Unassigned is one without a character, to this Python. A text without a
  character that composes is normalized: none of its own is changed by NFC, is
  put in another place, or joins one before it.
  """
  flags = np.full(_NUM_CODE_POINTS, _UNASSIGNED, np.uint8)
  for plane in _PLANES:
    for first in range(plane.start, plane.stop, _BLOCK):
      flags[first : first + _BLOCK] = _flags_of(range(first, first + _BLOCK))
  flags[_PLANES[-1].stop :] = 0
  flags[list(_second_of_pairs())] |= _COMPOSES
  return flags


def _flags_of(points: range) -> list[int] | int:
  block = "".join(map(chr, points))
  # Whole blocks of signs or syllables are quickly seen to be without any.
  if block.isprintable() and not any(map(unicodedata.combining, block)):
    if unicodedata.is_normalized("NFC", block):
      return 0
  return [
    _UNASSIGNED * (unicodedata.category(c) == "Cn")
    + _COMPOSES
    * (unicodedata.combining(c) > 0 or not unicodedata.is_normalized("NFC", c))
    for c in block
  ]


def _second_of_pairs() -> set[int]:
  """Code points that join the one before them into another."""
  # Vowels and final consonants of Hangul join by arithmetic.
  second = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
  for plane in _PLANES:
    for first in range(plane.start, plane.stop, _BLOCK):
      block = "".join(map(chr, range(first, first + _BLOCK)))
      if unicodedata.is_normalized("NFD", block):
        continue
      for parts in map(str.split, map(unicodedata.decomposition, block)):
        if len(parts) == 2 and not parts[0].startswith("<"):
          second.add(int(parts[1], 16))
  return second
