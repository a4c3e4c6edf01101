"""Examples as lists, and places as messages name them."""

import itertools


def place(index):
  return f"file.jsonl, record {index}"


def listed(examples):
  """For each record its examples, each (inputs, labels[, weights])."""
  columns = [examples.input_ids, examples.labels]
  if examples.weights is not None:
    columns.append(examples.weights)
  made = [
    tuple(column[a:b].tolist() for column in columns)
    for a, b in itertools.pairwise(examples.example_splits.tolist())
  ]
  splits = examples.record_splits.tolist()
  assert splits[-1] == len(made)
  return [made[a:b] for a, b in itertools.pairwise(splits)]
