"""Datasets of a hub of the test's own, by index and in turn."""

import gzip
import json

import pytest
from forked import Forked
from hub_server import Hub

CARD = b"""---
configs:
- config_name: en
  data_files:
  - split: train
    path: en/train-*.jsonl.gz
  - split: test
    path: en/test.jsonl
- config_name: fr
  data_files: fr.jsonl
---
"""

IMPORTS = """
import datasets
import fsspec.implementations.http
import hpgrain.sources.by_index.hugging_face
import hpgrain.sources.in_turn.hugging_face
"""
# What each run has: rows as they come, by index or in turn.
HELPERS = """
import json
import datasets
datasets.disable_progress_bars()
from hpgrain.sources.by_index.hugging_face import open_hugging_face
from hpgrain.sources.in_turn.hugging_face import open_hugging_face_in_turn

def texts(records):
  return "".join(record["text"] for record in records)

def by_index(*arguments, **options):
  records = open_hugging_face("org/two", *arguments, **options)
  return texts(records.read(range(len(records))))

def in_turn(*arguments, cursor=None, **options):
  source = open_hugging_face_in_turn("org/two", *arguments, **options)
  return texts(source.open(cursor).read(99).records())

def said(call, *arguments, **options):
  try:
    call(*arguments, **options)
  except Exception as error:
    return f"{type(error).__name__}: {error}"
"""
OFFLINE = """
import huggingface_hub.constants
huggingface_hub.constants.HF_HUB_OFFLINE = True
datasets.config.HF_HUB_OFFLINE = datasets.config.HF_DATASETS_OFFLINE = True
"""


def lines(texts):
  rows = [{"text": text, "n": i} for i, text in enumerate(texts)]
  return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture(scope="module")
def hub():
  """org/two with subsets, in two commits, of which v1 is the first."""
  with Hub() as made:
    files = {
      "README.md": CARD,
      "en/train-0.jsonl.gz": gzip.compress(lines("abcdef"), mtime=0),
      "en/train-1.jsonl.gz": gzip.compress(lines("ghij"), mtime=0),
      "en/test.jsonl": lines("z"),
      "fr.jsonl": lines("é"),
    }
    made.tag("org/two", "v1", made.commit("org/two", files))
    files["en/train-1.jsonl.gz"] = gzip.compress(lines("GHIJ"), mtime=0)
    made.commit("org/two", files)
    yield made


@pytest.fixture(autouse=True)
def forget_requests(hub):
  """Tests come in any order; what another one asked for is not theirs."""
  hub.forget()
  hub.heal()


@pytest.fixture(scope="module")
def online(hub, tmp_path_factory):
  home = str(tmp_path_factory.mktemp("home"))
  environment = {"HF_ENDPOINT": hub.url, "HF_HOME": home}
  with Forked(IMPORTS, **environment, HF_HUB_OFFLINE="0") as made:
    yield made


def answer(forked, code, *, before=""):
  """What an expression gives in a run of its own."""
  done = forked.run(f"{HELPERS}{before}print(json.dumps({code}))")
  assert done.status == 0, done.err
  return json.loads(done.out.splitlines()[-1])


def test_first_loaded_then_found_in_the_cache(online, hub, tmp_path):
  code = f"by_index(subset='en', cache_dir={str(tmp_path)!r})"
  assert answer(online, code) == "abcdefGHIJ"
  assert {"en/train-0.jsonl.gz", "en/train-1.jsonl.gz"} <= set(hub.downloads())
  # In the folder that was named, and in no other.
  made = sorted(tmp_path.rglob("*.arrow"))
  assert made
  times = [path.stat().st_mtime_ns for path in made]
  hub.forget()
  assert answer(online, code) == "abcdefGHIJ"
  assert hub.downloads() == []
  again = [
    path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*.arrow"))
  ]
  assert again == times


def test_subsets_splits_and_parts_by_index(online):
  assert answer(online, "by_index(subset='fr')") == "é"
  assert answer(
    online,
    "[by_index(subset='en', split=s) for s in ('test', 'train[:30%]',"
    " 'train[30%:]', 'train[2:4]+test', 'train[:1%]')]",
  ) == ["z", "abc", "defGHIJ", "cdz", ""]


def test_a_revision_is_a_commit(online, hub):
  first, second = hub.find("org/two", "v1"), hub.find("org/two", "main")
  new, old = "abcdefGHIJ", "abcdefghij"
  code = "by_index(subset='en', revision=r) for r in"
  assert answer(online, f"[{code} {('main', first)}]") == [new, old]
  code = "in_turn(subset='en', revision=r) for r in"
  assert answer(online, f"[{code} {('v1', second)}]") == [old, new]


def test_a_stream_from_any_shard_downloads_no_other(online, hub):
  assert answer(online, "in_turn(subset='en', cursor=[1, 1])") == "HIJ"
  assert set(hub.downloads()) == {"en/train-1.jsonl.gz"}
  hub.forget()
  assert answer(online, "in_turn(subset='en', cursor=[0, 4])") == "efGHIJ"
  assert answer(online, "in_turn(subset='en', split='test+train')") == (
    "zabcdefGHIJ"
  )


def test_what_a_stream_is_told_by(online, hub):
  code = (
    "open_hugging_face_in_turn('org/two', subset='en', revision=r).identity"
  )
  first, second = answer(online, f"[{code} for r in ('v1', None)]")
  assert first == {
    "format": "hugging_face_stream",
    "splits": ["train"],
    "dataset": "org/two",
    "subset": "en",
    "commit": hub.find("org/two", "v1"),
  }
  assert second == {**first, "commit": hub.find("org/two", "main")}
  assert hub.downloads() == []


def test_what_is_not_there_is_named(online, hub):
  said = answer(
    online,
    """[
      said(call, **options)
      for call in (by_index, in_turn)
      for options in (
        {},
        {"subset": "em"},
        {"subset": "en", "split": "trian"},
        {"subset": "en", "revision": "v2"},
      )
    ]""",
  )
  assert said[:4] == said[4:]
  assert said[:3] == [
    "ValueError: org/two has several subsets: name one with subset. They are:"
    " en, fr.",
    "ValueError: org/two has no subset 'em'. There are: en, fr.",
    "ValueError: org/two has no split 'trian'. There are: train, test. Did you"
    " mean 'train'?",
  ]
  assert said[3] == (
    f"ValueError: org/two has no revision 'v2' on {hub.url}. It has: main, v1."
    " Or give a commit."
  )
  assert hub.downloads() == []


def test_without_the_hub_what_was_seen_is_there(online, hub, tmp_path):
  cache = f"cache_dir={str(tmp_path)!r}"
  seen = (
    f"[by_index(subset='en', {cache}),"
    f" by_index(subset='en', revision='v1', {cache})]"
  )
  assert answer(online, seen) == ["abcdefGHIJ", "abcdefghij"]
  hub.forget()
  found, not_there, stream = answer(
    online,
    f"[{seen}, said(by_index, subset='fr', {cache}),"
    " said(in_turn, subset='en')]",
    before=OFFLINE,
  )
  assert found == ["abcdefGHIJ", "abcdefghij"]
  off = (
    "ConnectionError: The hub is not asked (HF_HUB_OFFLINE or"
    " HF_DATASETS_OFFLINE is set)"
  )
  assert not_there == (
    f"{off}, and the subset 'fr' of org/two is not in the cache. Run this once"
    " where the hub can be reached."
  )
  assert stream == (
    f"{off}, and org/two is to be streamed from it. Load it whole where the hub"
    ' can be reached (dataset_type="mapping"); after that it is in the cache.'
  )
  assert hub.requests == []


def test_a_dataset_that_is_not_there(online):
  for call in ("open_hugging_face", "open_hugging_face_in_turn"):
    assert answer(online, f"said({call}, 'org/none')").startswith(
      "ValueError: http://127.0.0.1"
    )
    assert answer(online, f"said({call}, './none')") == (
      "FileNotFoundError: The dataset folder ./none does not exist. Give a"
      " folder, or the name of a dataset on the hub, such as"
      " 'Salesforce/wikitext'."
    )
