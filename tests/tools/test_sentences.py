import itertools
import sys

import pytest
from helpers_tokenizer import read_pair
from preparation_twin import json_lines

from hpgrain.manifest import read_manifest
from hpgrain.tools.corpus import prepare_corpus
from hpgrain.tools.request import Sentences
from hpgrain.tools.sentences import sentence_splitter

TEXT = "Mr. Lee went home. He slept.\n\nThen  he woke up. "


def test_sentences_are_split_by_the_model(punkt):
  split = sentence_splitter(Sentences("english", keep_newlines=False))
  assert split(TEXT) == [
    "Mr. Lee went home.",
    "He slept.",
    "Then  he woke up.",
  ]
  assert split("") == []


def test_kept_newlines_stay_with_the_sentence_before(punkt):
  split = sentence_splitter(Sentences("english", keep_newlines=True))
  parts = split(TEXT)
  assert parts == [
    "Mr. Lee went home. ",
    "He slept.\n\n",
    "Then  he woke up. ",
  ]
  assert "".join(parts) == TEXT


def test_missing_model_or_package_says_what_to_get(punkt, monkeypatch):
  with pytest.raises(ValueError, match=r"'klingon' here.*downloader punkt_tab"):
    sentence_splitter(Sentences("klingon", keep_newlines=False))
  monkeypatch.setitem(sys.modules, "nltk", None)
  with pytest.raises(ValueError, match=r"needs the package nltk\. Install it"):
    sentence_splitter(Sentences("english", keep_newlines=False))


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("shuffle", [None, 1])
def test_each_sentence_is_a_sequence_and_the_last_has_the_eod(
  punkt, tmp_path, words, partitions, shuffle
):
  texts = ["a slept. The dog slept.", "", "e."]
  source = tmp_path / "in.jsonl"
  source.write_text(json_lines(texts))
  manifest = prepare_corpus(
    source,
    output_prefix=tmp_path / "x",
    tokenizer=words,
    split_sentences=True,
    workers=partitions,
    partitions=partitions,
    shuffle=shuffle,
  )
  _, tokens, lengths, indices = read_pair(tmp_path / "x_text_document")
  documents = {
    "a": ([3, 2, 2, 2, 2, 0], [2, 4]),
    "": ([], []),
    "e": ([2, 0], [2]),
  }
  found = []
  at = 0
  for first, last in itertools.pairwise(indices):
    sizes = lengths[first:last]
    found.append((tokens[at : at + sum(sizes)], sizes))
    at += sum(sizes)
  assert sorted(found) == sorted(documents.values())
  if shuffle is None:
    order = ["a", "", "e"] if partitions == 1 else ["a", "e", ""]
    assert found == [documents[name] for name in order]
  assert manifest.sentences == "english"
  assert read_manifest(tmp_path / "x_text_document") == manifest
