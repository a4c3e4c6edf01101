"""What a preparation must write, by the words of its definition and slowly."""

import json
import math

from hpgrain.index import permutation_key, permute


def expected_pair(
  texts,
  tokenizer,
  *,
  partitions=1,
  sequential=False,
  pack=None,
  tail="drop",
  shuffle=None,
  append_eod=True,
):
  """(tokens, lengths, document indices, dropped) of texts, in order."""
  documents = []
  for text in texts:
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    if ids and append_eod:
      ids.append(tokenizer.eos_token_id)
    documents.append(ids)
  if shuffle is not None and documents:
    key = permutation_key(shuffle, "offline_preparation", 0)
    order = [permute(i, len(documents), key=key) for i in range(len(documents))]
    documents = [documents[i] for i in order]
  parts = [[] for _ in range(partitions)]
  size = math.ceil(len(documents) / partitions)
  for i, document in enumerate(documents):
    parts[i // size if sequential else i % partitions].append(document)
  if pack is None:
    merged = [document for part in parts for document in part]
    dropped = 0
  else:
    streams = [[t for document in part for t in document] for part in parts]
    if tail == "carry":
      streams = [[t for stream in streams for t in stream]]
    merged, dropped = [], 0
    for stream in streams:
      while len(stream) > pack:
        merged.append(stream[: pack + 1])
        stream = stream[pack + 1 :]  # noqa: PLW2901
      dropped += len(stream)
  tokens, lengths, indices = [], [], [0]
  for document in merged:
    tokens += document
    lengths += [len(document)] * bool(document)
    indices.append(len(lengths))
  return tokens, lengths, indices, dropped


def json_lines(texts, key="text"):
  """The JSON Lines of texts under one key."""
  return "".join(json.dumps({key: text}) + "\n" for text in texts)
