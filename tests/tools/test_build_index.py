"""hpgrain/tools/build_index.py: what it builds, and that a run then has it."""

import contextlib
import itertools
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import ml_collections as mlc
import pytest
from corpora import write_pair

from hpgrain import build, shard
from hpgrain.config import check
from hpgrain.index_cache import CacheEvent
from hpgrain.tools import build_index
from hpgrain.tools.build_index import BuiltIndex, build_indices, with_workdir

DOCUMENTS = [[[1 + i % 9] * (3 + i % 6) + [0]] for i in range(60)]

CONFIG = """
from hpgrain.config import base_config

def get_config():
  config = base_config()
  config.dataset.data_path = "{workdir}/a"
  config.dataset.data_config.order = "megatron"
  config.dataset.data_config.seq_length = 8
  config.dataset.data_config.split = "8,2,0"
  config.training.train_iters = 3
  config.training.global_batch_size = 4
  return config
"""


@pytest.fixture
def corpora(tmp_path):
  return [
    write_pair(tmp_path / "a", DOCUMENTS),
    write_pair(tmp_path / "b", DOCUMENTS[:40]),
  ]


def config_of(data_path, cache, **data_config):
  data = {"seq_length": 8, "split": "8,2,0", "data_cache_path": str(cache)}
  return check(
    {
      "training": {"global_batch_size": 4, "train_iters": 3, "eval_iters": 2},
      "dataset": {"data_path": data_path, "data_config": data | data_config},
    }
  )


def told(indices):
  """What was said but times and files."""
  return [(i.event.kind, i.split, i.source, i.event.built) for i in indices]


def test_one_source_in_megatrons_order(corpora, tmp_path):
  config = config_of(corpora[0], tmp_path / "cache", order="megatron")
  for built in (True, False):
    indices = list(build_indices(config))
    assert told(indices) == [
      (kind, split, "a", built)
      for split in ("train", "valid")
      for kind in ("documents", "samples", "shuffle")
    ]
  paths = {index.event.path for index in indices}
  assert paths == set((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("lazy", [False, True])
def test_a_blend_has_an_index_too(corpora, tmp_path, lazy):
  config = config_of(
    (0.7, corpora[0], 0.3, corpora[1]),
    tmp_path / "cache",
    order="megatron",
    split="1,0,0",
    data_lazy_load=lazy,
  )
  assert told(build_indices(config)) == [
    ("blend", "train", None, True),
    ("documents", "train", "a", True),
    ("samples", "train", "a", True),
    ("shuffle", "train", "a", True),
    ("documents", "train", "b", True),
    ("samples", "train", "b", True),
    ("shuffle", "train", "b", True),
  ]


def test_train_alone_has_epochs_of_its_own(corpora, tmp_path):
  config = config_of(corpora[0], tmp_path / "cache", order="documents")
  assert len(list(build_indices(config))) == 2
  assert told(build_indices(config, epochs=2)) == [
    ("epoch_documents", "train", "a", False),
    ("epoch_samples", "train", "a", False),
    ("epoch_documents", "train", "a", True),
    ("epoch_samples", "train", "a", True),
  ]


@pytest.mark.parametrize("order", ["megatron", "documents"])
@pytest.mark.parametrize("blended", [False, True])
def test_a_run_builds_nothing(corpora, tmp_path, caplog, *, order, blended):
  data_path = (0.7, corpora[0], 0.3, corpora[1]) if blended else corpora[0]
  config = config_of(data_path, tmp_path / "cache", order=order)
  files = {index.event.path for index in build_indices(config)}
  caplog.clear()
  caplog.set_level(logging.INFO, "hpgrain.index_cache")
  mesh = shard.make_mesh(("data", "cp", "tp"), {"data": 4, "cp": 2, "tp": 1})
  loaders = build(config, mesh)
  for loader in (loaders.train, loaders.valid):
    with contextlib.closing(iter(loader)) as iterator:
      batches = list(itertools.islice(iterator, 2))
    assert all(isinstance(b["labels"], jax.Array) for b in batches)
  said = [
    record.getMessage()
    for record in caplog.records
    if record.name == "hpgrain.index_cache"
  ]
  assert said
  assert all(" loaded in " in text for text in said)
  assert {Path(text.split(", ")[-1]) for text in said} == files


def test_rows_that_need_no_index_have_none(corpora, tmp_path, capsys):
  config = config_of(corpora[0], tmp_path / "cache")
  assert build_index._print_table(build_indices(config))
  assert capsys.readouterr().out == (
    "nothing to build: the rows of this config need no index\n"
  )
  records = write_pair(tmp_path / "records", [[[1] * 9]] * 30)
  config = config_of(records, tmp_path / "cache", is_dataset_from_mr=True)
  assert list(build_indices(config)) == []
  assert not (tmp_path / "cache").exists()


def records_config(tmp_path, **data_config):
  for name in ("a", "b"):
    lines = [f'{{"input_ids": [{i}, 1, 2]}}\n' for i in range(10)]
    (tmp_path / f"{name}.jsonl").write_text("".join(lines))
  data = {"data_cache_path": str(tmp_path / "cache")} | data_config
  return check(
    {
      "dataset": {
        "kind": "online",
        "data_path": (1, f"{tmp_path}/a.jsonl", 1, f"{tmp_path}/b.jsonl"),
        "data_config": data,
      },
      "data_transform": {"data_type": "pretokenized", "max_seq_len": 8},
      "dataloader": {"type": "dynamic"},
    }
  )


@pytest.mark.parametrize("keep_tokens", [False, True])
def test_lengths_of_records_are_found_once(tmp_path, keep_tokens):
  config = records_config(tmp_path, split="8,2,0", keep_tokens=keep_tokens)
  names = [(s, name) for s in ("train", "valid") for name in ("a", "b")]
  expected = [("lengths", *name, True) for name in names]
  built = list(build_indices(config))
  assert told(built) == expected
  assert [index.event.num_bytes for index in built] == [32, 32, 8, 8]
  assert all(index.event.path for index in built)
  again = told(build_indices(config))
  assert again == [("lengths", *name, False) for name in names]


def test_streams_look_at_no_record_ahead(tmp_path):
  config = records_config(tmp_path, lengths="stream")
  assert list(build_indices(config)) == []


def test_a_cache_must_be_named(corpora, tmp_path):
  config = config_of(corpora[0], None, order="megatron", data_cache_path=None)
  with pytest.raises(
    ValueError, match=r"data_cache_path is unset.*data_cache_path=DIR, here"
  ):
    next(build_indices(config))


def test_a_split_without_a_row_is_an_error_for_train_alone(corpora, tmp_path):
  # A fifth of the documents, about 80 tokens, does not fill a row.
  short = {"order": "documents", "seq_length": 200}
  config = config_of(corpora[0], tmp_path / "cache", **short)
  assert {index.split for index in build_indices(config)} == {"train"}
  config = config_of(corpora[0], tmp_path / "cache", **short, split="1,99,0")
  with pytest.raises(ValueError, match=r"train"):
    list(build_indices(config))


def test_workdir_stands_for_the_runs_folder():
  config = mlc.ConfigDict(
    {
      "dataset": {
        "data_path": (0.5, "{workdir}/a", 0.5, "/b"),
        "data_config": {"data_cache_path": "{workdir}/cache"},
      }
    }
  )
  found = with_workdir(config, "/run")
  assert found.dataset.data_config.data_cache_path == "/run/cache"
  assert [e.path for e in found.dataset.data_path] == ["/run/a", "/b"]
  with pytest.raises(ValueError, match=r"in the run's folder.*--workdir=DIR"):
    with_workdir(config, None)


def test_the_table_tells_of_each(capsys):
  def indices(path):
    for built, where in ((True, Path("/c")), (False, Path("/c")), (True, path)):
      yield BuiltIndex(
        "train", "books", CacheEvent("documents", where, built, 1.5, 2_500_000)
      )
    yield BuiltIndex(
      "valid", None, CacheEvent("blend", Path("/c"), True, 1234.5, 10**12)
    )

  assert build_index._print_table(indices(Path("/c")))
  assert not build_index._print_table(indices(None))
  out = capsys.readouterr().out
  assert re.sub(r"in [0-9.]+ s", "in X s", out.split("kind", 2)[2]) == (
    "             split           MB   seconds  state     source\n"
    "documents        train        2.500      1.50  built     books\n"
    "documents        train        2.500      1.50  there     books\n"
    "documents        train        2.500      1.50  NOT KEPT  books\n"
    "blend            valid 1,000,000.000  1,234.50  built     (the blend)\n"
    "4 indices, 3 built and 1 there, 1,000,007.500 MB, in X s\n"
  )


def run(tmp_path, *arguments):
  config = tmp_path / "config.py"
  config.write_text(CONFIG)
  module = "hpgrain.tools.build_index"
  return subprocess.run(
    [sys.executable, "-m", module, f"--config={config}", *arguments],
    capture_output=True,
    text=True,
    timeout=100,
    check=False,
    env={**os.environ, "JAX_PLATFORMS": "none such"},
  )


@pytest.mark.usefixtures("corpora")
def test_the_command_builds_without_a_device(tmp_path):
  cache = "--config.dataset.data_config.data_cache_path={workdir}/cache"
  done = run(tmp_path, f"--workdir={tmp_path}", cache)
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert [line.split()[0] for line in lines[:-2]] == ["kind"] + 2 * [
    "documents",
    "samples",
    "shuffle",
  ]
  assert lines[-2].startswith("6 indices, 6 built and 0 there, ")
  assert lines[-1] == f"data_cache_path is {tmp_path}/cache"
  assert len(list((tmp_path / "cache").iterdir())) == 6


@pytest.mark.usefixtures("corpora")
def test_what_cannot_be_kept_is_an_exit_code(tmp_path):
  cache = "--config.dataset.data_config.data_cache_path=/proc/none"
  done = run(tmp_path, f"--workdir={tmp_path}", cache)
  assert done.returncode == 1
  assert done.stdout.count("NOT KEPT") == 6
  assert done.stderr.count("The index cache /proc/none cannot be used (") == 1


def test_errors_are_one_line_and_an_exit_code(tmp_path):
  done = run(tmp_path)
  assert (done.returncode, done.stdout) == (1, "")
  assert done.stderr.startswith("build_index: ValueError: The config has files")
  assert done.stderr.count("\n") == 1
