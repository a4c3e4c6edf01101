"""docs/online.md, and README on it, against the code.

The Python of the page is run from top to bottom, in one program, as a reader
would: only the folder and the size of a batch are others.
"""

import json
import re
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest
from absl import flags
from helpers_tokenizer import save_word_tokenizer
from ml_collections import config_flags

import hpgrain
from hpgrain.config import base_config, check
from hpgrain.config_schema import BY_NAME
from hpgrain.measured import MeasuredRecords
from hpgrain.online_samples import OnlineSamples
from hpgrain.packing import PackingOptions
from hpgrain.sources.by_index.in_memory import InMemoryRecords
from hpgrain.sources.in_turn.numbered import NumberedInTurn
from hpgrain.streams import StreamRows
from hpgrain.transforms.pretokenized import PretokenizedTransform

_ROOT = Path(__file__).parents[1]
_TEXT = (_ROOT / "docs/online.md").read_text("utf-8")
_README = (_ROOT / "README.md").read_text("utf-8")


def _blocks(language, text=_TEXT):
  return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def _checked(arguments):
  """The config that launch/train.py would have, completed."""
  values = flags.FlagValues()
  holder = config_flags.DEFINE_config_file(
    "config", flag_values=values, lock_config=True, sys_argv=arguments
  )
  values(arguments, known_only=True)
  return check(holder.value)


def _commands():
  text = "\n".join(_blocks("sh")).replace("\\\n", " ")
  return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("command", _commands())
def test_its_commands_are_legal(command, monkeypatch):
  monkeypatch.chdir(_ROOT)
  python, *arguments = shlex.split(command)
  assert (python, arguments[0]) == ("python", "launch/train.py")
  assert any(argument.startswith("--workdir=") for argument in arguments)
  assert _checked(arguments).dataset.kind == "online"


def test_it_names_every_config_of_packed_rows():
  table = re.findall(r"^\| `(\w+)` \|", _TEXT, re.M)
  configs = [path.stem for path in (_ROOT / "configs").glob("online_*.py")]
  assert {*configs, "indexed_packed"} <= set(table)


def test_its_keys_are_keys():
  sections = "training|data_transform|dataset|dataloader|get_batch|model_assets"
  text = re.sub(r"```.*?```", "", _TEXT, flags=re.DOTALL)
  named = set(re.findall(rf"`((?:{sections})\.[\w.]+)", text))
  assert len(named) > 10
  assert named <= BY_NAME.keys()


def test_words_in_code_are_keys_or_known():
  # Of words with an underscore most are keys: what is renamed shows up here.
  text = re.sub(r"```.*?```", "", _TEXT, flags=re.DOTALL)
  words = set(re.findall(r"`(\w+_\w+)(?:=[^`]*)?`", text))
  keys = {name.rpartition(".")[2] for name in BY_NAME}
  configs = {path.stem for path in (_ROOT / "configs").glob("*.py")}
  values = {w for k in BY_NAME.values() for w in k.legal or ()}
  others = {
    *("input_ids", "labels", "segment_ids", "loss_mask", "dataset_id"),
    *("first_row", "sources_at", "no_label", "tokens_read"),
    *("tokens_dropped", "tokens_in_rows", "data_transform"),
    *("__len__", "__getitem__", "save_to_disk"),
  }
  assert words - keys - configs - values - others == set()


@pytest.fixture
def folder(tmp_path):
  save_word_tokenizer(tmp_path / "tokenizer", eos_token="<eos>")
  for name in ("books", "code"):
    rng = np.random.default_rng(len(name))
    lines = [
      json.dumps({"text": " ".join(rng.choice(list("abcde"), size))})
      for size in rng.integers(1, 300, 200).tolist()
    ]
    (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
  return tmp_path


def _run(code, folder, seen):
  """Runs the page's Python with the test's folder, and a smaller batch."""
  code = code.replace('"/data/', f'"{folder}/')
  code = code.replace("global_batch_size = 512", "global_batch_size = 8")
  code = re.sub("max_seq_len = (2048|4096)", "max_seq_len = 256", code)
  exec(compile(code, "<docs/online.md>", "exec"), seen)


def test_its_python_runs(folder, capsys):
  forms, *blocks = _blocks("python")
  seen = {}
  build, records, rows, streams, objects = blocks
  _run(build, folder, seen)
  batch = seen["batch"]
  assert batch["input_ids"].shape == (8, 256)
  assert isinstance(batch["input_ids"], jax.Array)
  assert seen["counters"]["rows"] == 8
  assert list(seen["counters"]["sources"]) == ["books", "code"]
  # Both ways of naming a blend are the same one.
  config = seen["config"]
  _run(forms, folder, seen)
  assert [e.name for e in check(config).dataset.data_path] == ["books", "code"]

  _run(records, folder, seen)
  assert len(seen["train"]) == 196
  assert seen["test"] is None
  assert capsys.readouterr().out.startswith("196 {'text': '")

  _run(rows, folder, seen)
  row = seen["row"]
  assert len(row["tokens"]) == len(row["labels"]) > 3500
  assert seen["sizes"][0] == len(row["tokens"])
  lengths = seen["rows"].sources[0].counters
  assert lengths["dropped"]["filtered"] > 0

  _run(streams, folder, seen)
  assert seen["batch"]["input_ids"].shape == (8, 4096)
  assert (np.asarray(seen["batch"]["segment_ids"])[:, 3500] > 0).all()

  _run(objects, folder, seen)
  assert list(seen["both"].counters(1)["sources"]) == ["listed", "loaded"]
  assert len(seen["row"]["tokens"]) > 3500
  assert [source.name for source in seen["in_turn"]] == ["listed", "loaded"]


def test_the_python_of_the_readme_runs(folder):
  (code,) = [b for b in _blocks("python", _README) if '"online"' in b]
  mesh = jax.make_mesh((4, 2), ("data", "cp"))
  seen = {"hpgrain": hpgrain, "base_config": base_config, "mesh": mesh}
  _run(code, folder, seen)
  assert next(seen["batches"])["input_ids"].shape == (8, 256)
  seen["batches"].close()


def test_the_readme_names_every_config():
  names = set(re.findall(r"`(\w+)`", _README))
  assert {path.stem for path in (_ROOT / "configs").glob("*.py")} <= names


@pytest.mark.parametrize("text", [_README, _TEXT])
def test_files_that_are_named_are_there(text):
  links = re.findall(r"\]\((?!http)([^)#]+)", text)
  folder = _ROOT if text is _README else _ROOT / "docs"
  assert [link for link in links if not (folder / link).exists()] == []


def test_modules_that_the_readme_names_are_there():
  table = "\n".join(re.findall(r"^\|.*\|$", _README, re.M))
  # In the reference's own column are names of its files.
  cells = [line.split("|") for line in table.splitlines()]
  ours = "\n".join(line[-2] for line in cells) + "\n".join(
    line[1]
    for line in cells
    if ".py" in line[1] and "online_utils" not in line[1]
  )
  modules = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", ours)
  assert len(modules) > 40
  package = _ROOT / "hpgrain"
  missing = [m for m in modules if not (package / m).exists()]
  assert missing == []


def test_headings_that_are_linked_are_there():
  anchors = {
    re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
    for heading in re.findall(r"^#+ (.*)$", _TEXT, re.M)
  }
  linked = re.findall(r"\]\(docs/online\.md#([\w-]+)\)", _README)
  linked += re.findall(r"\]\(#([\w-]+)\)", _TEXT)
  assert len(linked) > 2
  assert set(linked) <= anchors


def _example():
  """The records of docs/orders.md on streams, and their transform."""
  lengths = [3, 6, 4, 2, 6, 1, 5, 5, 2, 7, 3, 4]
  records = [{"input_ids": [0] * n} for n in lengths]
  transform = PretokenizedTransform(max_seq_len=10, labels_are_shifted=False)
  return InMemoryRecords(records, name="a"), transform


def test_the_state_it_shows_is_that_of_streams():
  records, transform = _example()
  rows = StreamRows(
    [NumberedInTurn(records)],
    [transform],
    options=PackingOptions(budget=10),
    weights=None,
    seed=0,
    shuffle_buffer_size=None,
    epochs=1,
    num_streams=2,
    pack_window=3,
  )
  reader = rows.open([0, 1])
  reader.rows(np.arange(4))
  state = json.dumps(reader.state())
  reader.close()
  (shown,) = re.findall(r'"parts": \[\s*({.*?})\]}', _TEXT, re.DOTALL)
  assert json.dumps(json.loads(shown)) == state


def test_the_counters_it_shows_are_those_of_rows_by_number():
  records, transform = _example()
  rows = OnlineSamples(
    [MeasuredRecords(records, transform)],
    options=PackingOptions(budget=10),
    seed=0,
    epochs=1,
  )
  (shown,) = [b for b in _blocks("json") if '"padded"' in b]
  assert json.loads(shown) == rows.counters(len(rows))
