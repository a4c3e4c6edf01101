import argparse

import pytest

from hpgrain.tools import offline_preparation
from hpgrain.tools.engine_flags import add_engine_flags, parse_flags
from hpgrain.tools.preparation_flags import flow_options


def parser():
  made = argparse.ArgumentParser(allow_abbrev=False)
  made.add_argument("--keys", nargs="+", default=[])
  add_engine_flags(made.add_argument_group("more"))
  return made


def test_defaults_are_this_machine_and_all_of_the_work():
  flags = parse_flags(parser(), [])
  assert vars(flags) == {
    "keys": [],
    "runner": "local",
    "beam_options": (),
    "ray_address": None,
    "shard_index": 0,
    "num_shards": 1,
    "merge_only": False,
  }


@pytest.mark.parametrize(
  ("argv", "merge", "keys", "beam"),
  [
    (["merge"], True, [], ()),
    (["--merge-only"], True, [], ()),
    (["merge", "--merge-only"], True, [], ()),
    # A value is no command.
    (["--keys", "a", "merge"], False, ["a", "merge"], ()),
    (
      ["--keys", "a", "--", "--runner=R", "b"],
      False,
      ["a"],
      ("--runner=R", "b"),
    ),
    (["merge", "--keys", "merge", "--"], True, ["merge"], ()),
    (["--", "merge", "--", "x"], False, [], ("merge", "--", "x")),
  ],
)
def test_merge_comes_first_and_beams_options_last(argv, merge, keys, beam):
  flags = parse_flags(parser(), argv)
  assert (flags.merge_only, flags.keys, flags.beam_options) == (
    merge,
    keys,
    beam,
  )


def test_the_process_has_arguments_of_its_own(monkeypatch):
  monkeypatch.setattr("sys.argv", ["name", "merge", "--num-shards", "3"])
  flags = parse_flags(parser())
  assert (flags.merge_only, flags.num_shards) == (True, 3)


def test_other_runners_are_refused(capsys):
  with pytest.raises(SystemExit, match="2"):
    parse_flags(parser(), ["--runner", "spark"])
  assert "choose from" in capsys.readouterr().err


def test_flags_reach_the_options():
  argv = "--dataset-name-or-path d --output-prefix o --runner beam"
  argv += " --tokenizer-name-or-path t -- --runner=FlinkRunner"
  flags = parse_flags(offline_preparation.parser(), argv.split())
  options = flow_options(flags)
  assert options["runner"] == "beam"
  assert options["beam_options"] == ("--runner=FlinkRunner",)
  assert options["ray_address"] is None


def test_help_shows_both(capsys):
  with pytest.raises(SystemExit, match="0"):
    parse_flags(offline_preparation.parser(), ["merge", "--help"])
  said = capsys.readouterr().out
  assert "offline_preparation merge FLAGS --num-shards 3" in said
  assert "--runner beam -- --runner=DataflowRunner" in said
