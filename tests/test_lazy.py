import copy

import grain
import pytest
from corpora import write_pair

from hpgrain import BlendSamples, GPTSamples
from hpgrain.indexed_dataset import build_indexed_text_dataset
from hpgrain.lazy import LazySamples
from hpgrain.sources import indexed_reader


@pytest.fixture
def prefix(tmp_path):
  return write_pair(tmp_path / "a", [[list(range(1, 20))]])


class _Build:
  """Opens samples and counts how often."""

  def __init__(self, prefix):
    self.prefix, self.calls = prefix, 0

  def __call__(self):
    self.calls += 1
    return GPTSamples(self.prefix, seq_length=4, seed=0, shuffle=False)


@pytest.mark.parametrize(
  "look",
  [
    len,
    lambda samples: samples[0],
    lambda samples: samples.unique_identifiers,
    lambda samples: samples.plan_rows([0]),
    lambda samples: samples.seq_length,
    lambda samples: samples.sources[0].name,
  ],
)
def test_samples_are_opened_once_by_any_look(prefix, look):
  build = _Build(prefix)
  samples = LazySamples(build, "a")
  assert build.calls == 0
  look(samples)
  assert build.calls == 1
  look(samples)
  assert len(samples) == 4 and samples[3]["tokens"].tolist()
  assert build.calls == 1


def test_the_name_opens_nothing(prefix):
  build = _Build(prefix)
  samples = LazySamples(build, "books")
  assert samples.name == "books"
  samples.map(lambda row: row)
  LazySamples(build, "other")
  assert build.calls == 0


def test_rows_are_those_of_the_opened_samples(prefix):
  build = _Build(prefix)
  samples, opened = LazySamples(build, "a"), build()
  for row in range(6):
    assert samples[row]["tokens"].tolist() == opened[row]["tokens"].tolist()
  assert samples.unique_identifiers == opened.unique_identifiers
  assert samples[1:3][0]["tokens"].tolist() == opened[1]["tokens"].tolist()


def test_an_error_comes_when_it_is_looked_at_and_again(tmp_path):
  samples = LazySamples(_Build(str(tmp_path / "nothing")), "a")
  for _ in range(2):
    with pytest.raises(FileNotFoundError, match="nothing"):
      len(samples)
  write_pair(tmp_path / "nothing", [[list(range(9))]])
  assert len(samples) == 2


def test_a_copy_looks_for_no_private_name(prefix):
  samples = LazySamples(_Build(prefix), "a")
  copied = copy.copy(samples)
  assert copied._build.calls == 0
  assert len(copied) == 4
  with pytest.raises(AttributeError, match="_no_such_thing"):
    _ = samples._no_such_thing
  with pytest.raises(AttributeError, match="no_such_thing"):
    _ = samples.no_such_thing


def test_a_blend_of_lazy_members_opens_none_before_a_row(tmp_path):
  builds = [
    _Build(write_pair(tmp_path / name, [[list(range(9))]])) for name in "abc"
  ]
  blend = BlendSamples(
    [LazySamples(build, str(i)) for i, build in enumerate(builds)],
    weights=[1, 1, 1],
  )
  assert [build.calls for build in builds] == [0, 0, 0]
  blend[0]
  assert [build.calls for build in builds] == [1, 1, 1]


def test_data_lazy_load_opens_a_source_at_the_first_look(prefix, monkeypatch):
  opened = []
  init = indexed_reader.IndexedReader.__init__

  def spy(self, prefix, **options):
    opened.append(prefix)
    init(self, prefix, **options)

  monkeypatch.setattr(indexed_reader.IndexedReader, "__init__", spy)
  arguments = {"data_path": prefix, "seed": 0, "seq_length": 4, "split": "1"}
  build_indexed_text_dataset(**arguments)
  assert opened == [prefix]
  train, _, _ = build_indexed_text_dataset(**arguments, data_lazy_load=True)
  assert opened == [prefix]
  assert train[0]["tokens"].shape == (4,)
  assert len(train) == 4
  assert opened == [prefix, prefix]


def test_a_grain_iterator_over_lazy_rows_goes_on_after_restore(prefix):
  samples = LazySamples(_Build(prefix), "a")
  grain.experimental.assert_equal_output_after_checkpoint(
    samples.map(lambda row: row["tokens"]).to_iter_dataset()
  )
