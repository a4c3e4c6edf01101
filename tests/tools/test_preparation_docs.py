"""docs/preparation.md against the commands that it describes."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest
from helpers_tokenizer import read_pair
from preparation_twin import json_lines

from hpgrain.manifest import Manifest
from hpgrain.tokenizer import TokenizerInfo
from hpgrain.tools import (
  convert_indexed_dataset,
  huggingface_offline,
  offline_preparation,
  read_indexed_dataset,
)
from hpgrain.tools.corpus import prepare_corpus
from hpgrain.tools.engine_flags import parse_flags
from hpgrain.tools.readers import listing

DOCS = Path(__file__).parents[2] / "docs" / "preparation.md"
TEXT = DOCS.read_text(encoding="utf-8")
PARSERS = {
  "offline_preparation": offline_preparation.parser,
  "huggingface_offline": huggingface_offline.parser,
  "read_indexed_dataset": read_indexed_dataset.parser,
  "convert_indexed_dataset": convert_indexed_dataset.parser,
}


def section(heading):
  """What stands under a heading."""
  found = re.search(
    rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", TEXT, re.M | re.S
  )
  assert found, heading
  return found[1]


def table(text):
  """The flags of tables, and their defaults, as they are written."""
  return dict(re.findall(r"^\| `(--[a-z-]+)` \| ([^|]+) \|", text, re.M))


def written(action):
  """How the page must write a flag's default."""
  if action.required:
    return "required"
  if action.nargs == 0:
    return "off"
  value = action.default
  if value is None or value == []:
    return "unset"
  if isinstance(value, bool):
    return f"`{str(value).lower()}`"
  return f"`{' '.join(value) if isinstance(value, list) else value}`"


def flags(command):
  """A command's flags, and their defaults as the page must write them."""
  return {
    action.option_strings[-1]: written(action)
    for action in PARSERS[command]()._actions
    if action.option_strings and action.dest != "help"
  }


@pytest.mark.parametrize(
  "command", ["offline_preparation", "huggingface_offline"]
)
def test_the_page_has_every_flag_with_its_default(command):
  both = table(section("Both commands"))
  alone = table(section(f"`{command}` alone"))
  assert not both.keys() & alone.keys()
  assert both | alone == flags(command)


def test_the_page_has_the_flags_of_the_tools_that_read():
  found = table(section("Looking at a corpus"))
  assert found == (
    flags("read_indexed_dataset") | flags("convert_indexed_dataset")
  )


def commands():
  """Every command line of the page."""
  for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S):
    for line in block.replace("\\\n", " ").splitlines():
      words = shlex.split(line)
      if words[:2] == ["python", "launch/train.py"]:
        # The trainer's flags are its own tests' matter.
        continue
      assert words[:2] == ["python", "-m"], line
      yield words[2].removeprefix("hpgrain.tools."), words[3:]


def test_every_command_of_the_page_is_one():
  seen = set()
  for name, arguments in commands():
    made = PARSERS[name]()
    if name.endswith("_dataset"):
      made.parse_args(arguments)
    else:
      parse_flags(made, arguments)
    seen.add(name)
  assert seen == set(PARSERS)


def test_the_page_has_every_field_of_the_manifest():
  named = set(re.findall(r"`([a-z_]+)`", section("The manifest")))
  for kind in (Manifest, TokenizerInfo):
    assert {field.name for field in dataclasses.fields(kind)} <= named


def test_the_page_has_every_suffix():
  rows = section("Inputs")
  for suffix in (*listing._FORMATS, *listing._COMPRESSIONS):
    assert f"`{suffix}`" in rows


RECORDS = ("a b", "c d e", "", "e", "b b")


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("dealt", {}),
    ("consecutive", {"keep_sequential_samples": True}),
    ("dealt, packed", {"pack_to_seq_len": 3}),
    ("dealt, packed, carry", {"pack_to_seq_len": 3, "pack_tail": "carry"}),
    (
      "consecutive, packed",
      {"pack_to_seq_len": 3, "keep_sequential_samples": True},
    ),
  ],
)
@pytest.mark.filterwarnings("ignore:Tokenizing with Hugging Face")
def test_the_worked_example_is_what_comes_out(tmp_path, words, name, options):
  (tmp_path / "in.jsonl").write_text(json_lines(RECORDS))
  manifest = prepare_corpus(
    tmp_path / "in.jsonl",
    output_prefix=tmp_path / "x",
    tokenizer=words,
    workers=2,
    partitions=2,
    **options,
  )
  _, tokens, lengths, indices = read_pair(tmp_path / "x_text_document")
  documents, tokens = [], list(map(str, tokens))
  for first, last in zip(indices, indices[1:]):  # noqa: RUF007
    size = sum(lengths[first:last])
    documents.append(" ".join(tokens[:size]) or "-")
    del tokens[:size]
  line = rf"^{name} +{re.escape(' | '.join(documents))}"
  if "packed" in name:
    tokens, tails = manifest.dropped_tokens, manifest.dropped_documents
    line += rf" +dropped {tokens} tokens in {tails} tails"
  assert re.search(f"{line}$", TEXT, re.M), line


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_first_summary_is_the_one_that_is_printed(
  tmp_path, bpe_folder, capsys, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  block = re.search(r"four records:\n\n```text\n(.*?)```", TEXT, re.S)
  Path("notes.jsonl").write_text(block[1], encoding="utf-8")
  name, arguments = next(iter(commands()))
  assert name == "offline_preparation"
  place = arguments.index("example/tokenizer")
  arguments[place] = str(bpe_folder)
  assert offline_preparation.main(arguments) == 0
  shown = re.search(r"```text\n(inputs .*?)```", TEXT, re.S)[1].splitlines()
  said = capsys.readouterr().out.splitlines()
  assert len(said) == len(shown)
  for ours, page in zip(said, shown, strict=True):
    # Tokens, times and names depend on the tokenizer and the machine.
    assert ours[:20].split("  ")[0] == page[:20].split("  ")[0]
  for line in (*shown[:2], *shown[3:8], shown[9], shown[10]):
    assert line in said
