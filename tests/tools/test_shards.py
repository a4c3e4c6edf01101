import os

import pytest
from preparation_twin import json_lines

from hpgrain.tools.corpus import prepare
from hpgrain.tools.offline_preparation import main
from hpgrain.tools.options import Options
from hpgrain.tools.work_folder import Shard, opened

TEXTS = ["one two", "", "three four five", "six", "seven eight", "nine"] * 5
# Some 30 bytes a record: units of one or two.
UNIT = {"unit_bytes": 40, "log_interval": 0}


@pytest.fixture
def source(tmp_path):
  path = tmp_path / "in.jsonl"
  path.write_text(json_lines(TEXTS))
  return path


@pytest.fixture
def out(tmp_path):
  return tmp_path / "out"


def files(folder):
  return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def parts(out):
  return out / "x_text_document.parts"


def unit_names(out):
  return {path.name for path in parts(out).glob("*.unit")}


def shard(source, out, bpe, index, count, **options):
  return prepare(
    Options(
      source,
      out / "x",
      num_shards=count,
      shard_index=index,
      **{**UNIT, **options},
    ),
    tokenizer=bpe,
  )


def merge(source, out, bpe, **options):
  return prepare(
    Options(source, out / "x", merge_only=True, **{**UNIT, **options}),
    tokenizer=bpe,
  )


@pytest.fixture
def whole(source, tmp_path, bpe):
  prepare(Options(source, tmp_path / "whole" / "x", **UNIT), tokenizer=bpe)
  return files(tmp_path / "whole")


def test_a_shard_that_runs_twice_does_nothing_again(source, out, bpe, whole):
  first = shard(source, out, bpe, 0, 2)
  assert first.num_done > 1
  again = shard(source, out, bpe, 0, 2)
  assert (again.num_done, again.num_reused) == (0, first.num_done)
  shard(source, out, bpe, 1, 2)
  merge(source, out, bpe, num_shards=2, shard_index=1)
  assert files(out) == whole


def test_of_two_runs_of_a_shard_the_second_is_refused(source, out, bpe):
  report = shard(source, out, bpe, 0, 2)
  assert report.num_done
  request = (parts(out) / "request.json").read_bytes()
  with opened_shard(parts(out), Shard(1, 2)):
    with pytest.raises(BlockingIOError, match="by another run of the same out"):
      shard(source, out, bpe, 1, 2)
    # Another one may work, and nobody may gather yet.
    assert shard(source, out, bpe, 0, 2).num_done == 0
    with pytest.raises(BlockingIOError, match="Wait until it is done"):
      merge(source, out, bpe)
  assert (parts(out) / "request.json").read_bytes() == request
  assert shard(source, out, bpe, 1, 2).num_done


def opened_shard(path, which):
  from hpgrain.tools.durable import read_json

  request = read_json(path / "request.json")
  return opened(path, request, shard=which, restart=False)


def test_merge_names_the_shards_that_are_missing(source, out, bpe, whole):
  num_units = shard(source, out, bpe, 0, 3).num_units
  of = [len(range(index, num_units, 3)) for index in range(3)]
  message = (
    rf"{of[1] + of[2]} of {num_units} units are not finished in .*: of 3"
    rf" shards, shard 1 \({of[1]} missing\), shard 2 \({of[2]} missing\)\. Let"
  )
  for options in ({}, {"num_shards": 3}):
    with pytest.raises(ValueError, match=message):
      merge(source, out, bpe, **options)
  shard(source, out, bpe, 2, 3)
  # A lost one is run again, anywhere.
  shard(source, out, bpe, 1, 3)
  report = merge(source, out, bpe)
  assert (report.num_done, report.num_reused) == (0, num_units)
  assert files(out) == whole


def test_another_number_of_shards_goes_on_with_what_is_there(
  source, out, bpe, whole
):
  num_units = shard(source, out, bpe, 0, 2).num_units
  done = shard(source, out, bpe, 1, 3)
  assert done.num_reused == len(
    set(range(0, num_units, 2)) & set(range(1, num_units, 3))
  )
  with pytest.raises(
    ValueError, match=r"the first of them unit 3\. .*: give that flag to see"
  ):
    merge(source, out, bpe)
  with pytest.raises(ValueError, match=r"of 2 shards, shard 1 \(\d+ missing\)"):
    merge(source, out, bpe, num_shards=2)
  shard(source, out, bpe, 1, 2)
  merge(source, out, bpe)
  assert files(out) == whole


@pytest.mark.parametrize("options", [{}, {"overwrite": True}])
def test_a_shard_or_a_merge_of_another_request_is_refused(
  source, out, bpe, options
):
  shard(source, out, bpe, 0, 2)
  before = files(parts(out))
  message = "append_eod is True there and False here"
  with pytest.raises(ValueError, match=message):
    shard(source, out, bpe, 1, 2, append_eod=False, **options)
  with pytest.raises(ValueError, match=message):
    merge(source, out, bpe, append_eod=False, **options)
  after = files(parts(out))
  after.pop("1-of-2.lock", None)
  assert after == before


def test_only_a_unit_whose_file_is_gone_is_done_again(source, out, bpe, whole):
  for index in range(2):
    shard(source, out, bpe, index, 2)
  gone = parts(out) / "00000003.unit"
  kept = {path: path.stat().st_mtime_ns for path in parts(out).glob("*.unit")}
  data = gone.read_bytes()
  gone.unlink()
  with pytest.raises(ValueError, match=r"of 2 shards, shard 1 \(1 missing\)"):
    merge(source, out, bpe)
  report = shard(source, out, bpe, 1, 2)
  assert report.num_done == 1
  assert gone.read_bytes() == data
  for path, time in kept.items():
    assert path == gone or path.stat().st_mtime_ns == time
  merge(source, out, bpe)
  assert files(out) == whole


def test_a_damaged_unit_is_refused_and_done_again(source, out, bpe, whole):
  for index in range(2):
    shard(source, out, bpe, index, 2)
  path = parts(out) / "00000004.unit"
  os.truncate(path, path.stat().st_size - 1)
  with pytest.raises(ValueError, match=r"00000004.unit is not the whole file"):
    merge(source, out, bpe)
  path.unlink()
  shard(source, out, bpe, 0, 2)
  merge(source, out, bpe)
  assert files(out) == whole


@pytest.mark.parametrize("word", [True, False])
def test_the_command_takes_merge_as_a_word_or_a_flag(
  source, out, bpe_folder, capsys, *, word
):
  command = ["--dataset-name-or-path", str(source), "--output-prefix"]
  command += [str(out / "x"), "--tokenizer-name-or-path", str(bpe_folder)]
  command += ["--num-shards", "2", "--log-interval", "0"]
  with pytest.warns(UserWarning, match="AutoTokenizer"):
    for index in ("1", "0"):
      assert main([*command, "--shard-index", index]) == 0
      assert f"shard {index} of 2 is done" in capsys.readouterr().out
      assert not (out / "x_text_document.idx").exists()
    gathering = ["merge", *command] if word else [*command, "--merge-only"]
    assert main(gathering) == 0
  assert "x_text_document.bin, .idx and" in capsys.readouterr().out
  assert not parts(out).exists()
