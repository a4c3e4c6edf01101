"""Samples of the input: some first texts, and little read for them."""

import gzip
import json

import pytest

from hpgrain.tools import sample
from hpgrain.tools.inputs import find_inputs, units
from hpgrain.tools.sample import sample_texts
from hpgrain.tools.unit_batches import good_records


def sampled(path, key="text"):
  """The sample's texts, and how many bad records were met for it."""
  bad = []

  def read(unit, on_bad):
    def counted(record):
      bad.append(record)
      on_bad(record)

    return good_records(unit, [key], chat=None, on_bad=counted)

  return sample_texts(units(find_inputs(path)), read), len(bad)


def save(path, records):
  with gzip.open(path, "wt", compresslevel=1) as file:
    file.writelines(json.dumps(record) + "\n" for record in records)
  return path


def test_unit_without_the_key_is_left_after_some_records(tmp_path):
  path = save(tmp_path / "x.jsonl.gz", [{"text": "a"}] * 5000)
  assert sampled(path, "body") == ([], sample._RECORDS)


def test_unit_without_the_key_is_left_after_some_bytes(tmp_path):
  path = save(tmp_path / "x.jsonl.gz", [{"text": "a" * 10**6}] * 20)
  found, bad = sampled(path, "body")
  assert found == []
  assert bad == 6


def test_what_was_found_before_is_kept(tmp_path):
  records = [{"text": "a"}, {"body": "b"}, {"text": "c"}]
  path = save(tmp_path / "x.jsonl.gz", records + [{"body": "b"}] * 5000)
  assert sampled(path) == (["a", "c"], sample._RECORDS - 2)


@pytest.mark.parametrize("size", [1, 5000])
def test_good_records_end_the_sample_as_well(tmp_path, size):
  path = save(tmp_path / "x.jsonl.gz", [{"text": "a" * size}] * 5000)
  found, bad = sampled(path)
  assert bad == 0
  assert set(found) == {"a" * size}
  assert len(found) == (sample._RECORDS if size == 1 else 4)
