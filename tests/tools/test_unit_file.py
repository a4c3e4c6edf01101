import numpy as np
import pytest

from hpgrain.tools import unit_file
from hpgrain.tools.unit_file import UnitReader, UnitWriter

U2 = np.dtype("<u2")


def array(*values):
  return np.array(values, U2)


@pytest.mark.parametrize("block", [1, 2, 1 << 20])
def test_what_was_written_is_read(tmp_path, monkeypatch, block):
  monkeypatch.setattr(unit_file, "BLOCK_TOKENS", block)
  path = tmp_path / "u"
  writer = UnitWriter(path, dtype=U2, num_keys=2)
  writer.add_tokens(0, array(1, 2, 3))
  writer.end_records(0, np.array([2, 0, 1]))
  writer.add_tokens(1, array(9))
  writer.end_records(1, np.array([0, 1, 0]))
  # A record's tokens may come in pieces.
  writer.add_tokens(0, array(4))
  writer.add_tokens(0, array(5, 6))
  writer.end_records(0, np.array([3]))
  writer.add_tokens(1, array())
  writer.end_records(1, np.array([0]))
  writer.finish({"records": 4, "more": [1]})
  with UnitReader(path) as reader:
    assert (reader.dtype, reader.num_records) == (U2, 4)
    assert reader.summary == {"records": 4, "more": [1]}
    assert [reader.num_tokens(key) for key in (0, 1)] == [6, 1]
    assert reader.token_range(0, 0, 4).tolist() == [0, 2, 2, 3, 6]
    assert reader.token_range(0, 1, 3).tolist() == [2, 2, 3]
    assert reader.token_range(1, 0, 4).tolist() == [0, 0, 1, 1, 1]
    assert reader.sequence_range(0, 1, 4).tolist() == [1, 2, 3, 4]
    blocks = list(reader.tokens(0, 1, 5))
    assert len(blocks[0]) == min(block, 4)
    assert np.concatenate(blocks).tolist() == [2, 3, 4, 5]
    assert [b.tolist() for b in reader.tokens(1, 0, 1)] == [[9]]
    assert list(reader.tokens(0, 2, 2)) == []


def test_divided_records_have_sequences(tmp_path):
  writer = UnitWriter(tmp_path / "u", dtype=U2, num_keys=1, divided=True)
  writer.add_tokens(0, array(1, 2, 3))
  writer.end_records(0, np.array([1, 2]), np.array([0, 2, 0]))
  writer.add_tokens(0, array(4))
  writer.end_records(0, np.array([1]), np.array([1]))
  writer.finish({"records": 4})
  with UnitReader(tmp_path / "u") as reader:
    assert reader.sequence_range(0, 0, 4).tolist() == [0, 0, 2, 2, 3]
    assert reader.sequence_range(0, 2, 4).tolist() == [2, 2, 3]
    assert reader.token_range(0, 0, 3).tolist() == [0, 1, 3, 4]


def test_a_unit_without_records(tmp_path):
  writer = UnitWriter(tmp_path / "u", dtype=U2, num_keys=1)
  writer.finish({"records": 0})
  with UnitReader(tmp_path / "u") as reader:
    assert reader.token_range(0, 0, 0).tolist() == [0]
    assert list(reader.tokens(0, 0, 0)) == []


def test_nothing_but_a_whole_file_is_read(tmp_path):
  path = tmp_path / "u"
  writer = UnitWriter(path, dtype=U2, num_keys=1)
  writer.add_tokens(0, array(1, 2, 3))
  writer.end_records(0, np.array([3]))
  writer.finish({"records": 1})
  whole = path.read_bytes()
  for size in range(len(whole)):
    path.write_bytes(whole[:size])
    with pytest.raises(ValueError, match="is not the whole file of a prepared"):
      UnitReader(path)
  with pytest.raises(FileNotFoundError, match="none"):
    UnitReader(tmp_path / "none")


def test_tokens_of_a_record_that_is_given_up_are_taken_back(tmp_path):
  writer = UnitWriter(tmp_path / "u", dtype=U2, num_keys=2)
  for key in (0, 1):
    writer.add_tokens(key, array(1, 2))
    writer.end_records(key, np.array([2]))
  writer.drop_tokens()
  writer.add_tokens(0, array(*range(3000)))
  writer.add_tokens(1, array(7))
  writer.drop_tokens()
  for key in (0, 1):
    writer.add_tokens(key, array(3))
    writer.end_records(key, np.array([1]))
  writer.finish({"records": 2})
  with UnitReader(tmp_path / "u") as reader:
    for key in (0, 1):
      (tokens,) = reader.tokens(key, 0, 3)
      assert tokens.tolist() == [1, 2, 3]
      assert reader.token_range(key, 0, 2).tolist() == [0, 2, 3]
