import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpgrain.examples import Examples, cut_documents, take_examples
from hpgrain.records import IGNORE_INDEX


def listed(examples):
  """For each record its examples, each (inputs, labels)."""
  made = [
    tuple(array.tolist() for array in examples.example(e))
    for e in range(len(examples))
  ]
  splits = examples.record_splits.tolist()
  return [made[a:b] for a, b in itertools.pairwise(splits)]


def twin(documents, size, shifted, trained=None):
  """A window at a time."""
  records = []
  for d, ids in enumerate(documents):
    kept = [
      id if trained is None or trained[d][i] else IGNORE_INDEX
      for i, id in enumerate(ids)
    ]
    windows = []
    for s in range(0, len(ids) - shifted, size):
      inputs = ids[s : s + size + shifted]
      labels = kept[s : s + size + shifted]
      windows.append((inputs[: len(inputs) - shifted], labels[shifted:]))
    records.append(windows)
  return records


def cut(documents, **options):
  flat = np.array([i for ids in documents for i in ids], np.int32)
  return cut_documents(flat, [len(ids) for ids in documents], **options)


def test_a_labels_id_is_the_next_windows_first_input():
  documents = [[1, 2, 3, 4, 5, 6, 7]]
  shifted = cut(documents, max_seq_len=3, labels_are_shifted=True)
  assert listed(shifted) == [
    [([1, 2, 3], [2, 3, 4]), ([4, 5, 6], [5, 6, 7])],
  ]
  unshifted = cut(documents, max_seq_len=3, labels_are_shifted=False)
  assert listed(unshifted) == [
    [([1, 2, 3], [1, 2, 3]), ([4, 5, 6], [4, 5, 6]), ([7], [7])],
  ]


def test_a_document_of_one_id_has_nothing_to_predict():
  documents = [[], [5], [6, 7]]
  shifted = cut(documents, max_seq_len=4, labels_are_shifted=True)
  assert listed(shifted) == [[], [], [([6], [7])]]
  assert shifted.num_records == 3 and len(shifted) == 1
  unshifted = cut(documents, max_seq_len=4, labels_are_shifted=False)
  assert listed(unshifted) == [[], [([5], [5])], [([6, 7], [6, 7])]]


def test_what_is_not_trained_is_no_label():
  examples = cut(
    [[1, 2, 3]],
    max_seq_len=8,
    labels_are_shifted=True,
    trained=np.array([True, False, True]),
  )
  assert listed(examples) == [[([1, 2], [IGNORE_INDEX, 3])]]
  assert examples.labels.dtype == examples.input_ids.dtype == np.int32


def test_an_end_is_put_behind_each_document():
  documents = [[1, 2, 3], [], [4]]
  shifted = cut(documents, max_seq_len=2, labels_are_shifted=True, end_id=9)
  assert listed(shifted) == [
    [([1, 2], [2, 3]), ([3], [9])],
    [],
    [([4], [9])],
  ]
  unshifted = cut(documents, max_seq_len=2, labels_are_shifted=False, end_id=9)
  assert listed(unshifted) == [
    [([1, 2], [1, 2]), ([3, 9], [3, 9])],
    [],
    [([4, 9], [4, 9])],
  ]


@pytest.mark.parametrize(
  "shifted, end_id, labels, weights",
  [
    (True, None, [IGNORE_INDEX, 3, 5], [0, 2, 1]),
    (True, 9, [IGNORE_INDEX, 3, 9, 5, 9], [0, 2, 1, 1, 1]),
    (False, None, [1, IGNORE_INDEX, 3, 4, 5], [0.5, 0, 2, 1, 1]),
    (
      False,
      9,
      [1, IGNORE_INDEX, 3, 9, 4, 5, 9],
      [0.5, 0, 2, 1, 1, 1, 1],
    ),
  ],
)
def test_weights_stand_beside_their_labels(shifted, end_id, labels, weights):
  examples = cut(
    [[1, 2, 3], [4, 5]],
    max_seq_len=8,
    labels_are_shifted=shifted,
    weights=np.array([0.5, 0, 2, 1, 1]),
    end_id=end_id,
  )
  assert examples.labels.tolist() == labels
  assert examples.weights.tolist() == weights
  assert examples.weights.dtype == np.float32


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match="max_seq_len must be at least 1, got 0"):
    cut([[1]], max_seq_len=0, labels_are_shifted=True)
  with pytest.raises(ValueError, match=r"2 documents add up to 3, .* 2 ids"):
    cut_documents(
      np.array([1, 2]), [1, 2], max_seq_len=1, labels_are_shifted=True
    )


@settings(max_examples=200, deadline=None)
@given(
  documents=st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=6),
  size=st.integers(1, 6),
  shifted=st.booleans(),
  end_id=st.sampled_from([None, 7]),
  data=st.data(),
)
def test_documents_are_cut_as_defined(documents, size, shifted, end_id, data):
  trained = data.draw(
    st.tuples(
      *(
        st.lists(st.booleans(), min_size=len(d), max_size=len(d))
        for d in documents
      )
    )
  )
  examples = cut(
    documents,
    max_seq_len=size,
    labels_are_shifted=shifted,
    trained=np.array([t for flags in trained for t in flags], bool),
    end_id=end_id,
  )
  if end_id is not None:
    trained = [[*flags, True] for flags in trained]
    documents = [[*ids, end_id] if ids else [] for ids in documents]
  assert listed(examples) == twin(documents, size, shifted, trained)


def test_examples_are_taken_by_number():
  made = Examples(
    np.array([0, 2, 3]),
    np.array([0, 2, 2, 5]),
    np.array([1, 2, 3, 4, 5], np.int32),
    np.array([2, 3, 4, 5, 6], np.int32),
    np.array([0, 1, 2, 3, 4], np.float32),
  )
  taken = take_examples(made, np.array([2, -1, 0, 1, 2]))
  assert taken.record_splits.tolist() == [0, 1, 2, 3, 4, 5]
  assert taken.example_splits.tolist() == [0, 3, 3, 5, 5, 8]
  assert taken.input_ids.tolist() == [3, 4, 5, 1, 2, 3, 4, 5]
  assert taken.labels.tolist() == [4, 5, 6, 2, 3, 4, 5, 6]
  assert taken.weights.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
  none = take_examples(made, np.zeros(0, np.int64))
  assert (len(none), none.num_records) == (0, 0)
