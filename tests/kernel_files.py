"""Corpora and generators of the tests as the C++ kernels take them."""

import itertools

import numpy as np
import twins
from hypothesis import strategies as st

from hpgrain import _kernels


def token_file(corpus, **changes):
  """A pair whose index arrays lie as in a file: after 34 bytes."""
  arrays = {
    "lengths": corpus.lengths,
    "pointers": corpus.pointers,
    "document_indices": np.array(corpus.document_indices, np.int64),
  }
  arrays.update(changes)
  names = ("lengths", "pointers", "document_indices")
  raw = bytes(34) + b"".join(arrays[name].tobytes() for name in names)
  views, at = [], 34
  for name in names:
    array = arrays[name]
    views.append(np.frombuffer(raw, array.dtype, len(array), at))
    at += array.nbytes
  tokens = np.frombuffer(corpus.tokens.tobytes(), np.uint8)
  return _kernels.TokenFile(
    *views, corpus.dtype_code, arrays.get("tokens", tokens)
  )


def kernel_shuffle(array, random_state):
  """RandomState.shuffle by way of the kernel."""
  name, key, position, *_ = random_state.get_state(legacy=True)
  key = np.array(key, np.uint32)
  position = _kernels.shuffle(array, key, position)
  random_state.set_state((name, key, position))


@st.composite
def corpora(draw, max_sequences=14, code=None):
  """Short sequences, some empty, in documents of none, one or more."""
  code = code or draw(st.sampled_from(sorted(twins.DTYPES)))
  lengths = draw(st.lists(st.integers(0, 6), max_size=max_sequences))
  number = itertools.count()
  sequences = [[next(number) % 100 for _ in range(n)] for n in lengths]
  inner = draw(
    st.lists(st.integers(0, len(lengths)), max_size=max_sequences)
    | st.just(list(range(1, len(lengths))))
  )
  return twins.Corpus(sequences, [0, *sorted(inner), len(lengths)], code)
