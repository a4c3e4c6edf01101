"""Every engine gives the same bytes and says the same of what is wrong."""

import importlib.util
import itertools
import subprocess
import sys

import pytest
from preparation_twin import json_lines

from hpgrain.tools import engine
from hpgrain.tools.corpus import prepare
from hpgrain.tools.options import Options
from hpgrain.tools.work_folder import WorkFolder

TEXTS = [
  "one two",
  "",
  "three four five",
  "naïve été",
  "seven 中文",
  "nine",
] * 6
TWO_PROCESSES = (
  "--direct_running_mode=multi_processing",
  "--direct_num_workers=2",
)
LAYOUT = {
  "partitions": 2,
  "workers": 2,
  "pack_to_seq_len": 5,
  "shuffle": 3,
  "log_interval": 0,
  "unit_bytes": 200,
}


def files(folder):
  return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def source(tmp_path):
  folder = tmp_path / "in"
  folder.mkdir()
  (folder / "a.jsonl").write_text(json_lines(TEXTS))
  (folder / "b.jsonl").write_text(json_lines(TEXTS[:7]))
  return folder


@pytest.fixture
def kept(monkeypatch):
  """The units of each run, as they are before the folder is removed."""
  found = {}
  remove = WorkFolder.remove

  def keep(folder):
    found.update(files(folder.path))
    remove(folder)

  monkeypatch.setattr(WorkFolder, "remove", keep)

  def take():
    units = {name: data for name, data in found.items() if ".unit" in name}
    assert not [name for name in found if name.endswith((".job", ".error"))]
    found.clear()
    return units

  return take


@pytest.fixture
def expected(source, tmp_path, bpe, kept):
  """The units and the output of one process."""
  out = tmp_path / "one"
  options = LAYOUT | {"workers": 2}
  prepare(Options(source, out / "x", **options), tokenizer=bpe)
  return kept(), files(out)


@pytest.fixture(scope="module")
def ray():
  """A cluster of this machine, for all tests."""
  ray = pytest.importorskip("ray", reason="hpgrain[ray] is not installed")
  with pytest.MonkeyPatch.context() as context:
    for name, value in (
      ("RAY_AUTH_MODE", "disabled"),
      ("RAY_USAGE_STATS_ENABLED", "0"),
      ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),
    ):
      context.setenv(name, value)
    ray.init(
      address="local", num_cpus=2, include_dashboard=False, log_to_driver=False
    )
    yield ray
    ray.shutdown()


@pytest.fixture
def beam():
  pytest.importorskip("apache_beam", reason="hpgrain[beam] is not installed")


def check(source, out, bpe, kept, *, expected, **options):
  report = prepare(
    Options(source, out / "x", **LAYOUT | options), tokenizer=bpe
  )
  assert (report.num_done, report.num_reused) == (report.num_units, 0)
  assert report.num_units > 5
  assert (kept(), files(out)) == expected


def test_local_processes_give_the_same_bytes(
  source, tmp_path, bpe, kept, *, expected, monkeypatch
):
  monkeypatch.setattr(engine, "SMALL_INPUT_BYTES", 0)
  check(source, tmp_path / "two", bpe, kept, expected=expected)


def test_shards_in_any_order_give_the_same_bytes(
  source, tmp_path, bpe, kept, expected
):
  for number, order in enumerate(itertools.permutations(range(3))):
    out = tmp_path / f"shards{number}"
    for index in order:
      prepare(
        Options(source, out / "x", num_shards=3, shard_index=index, **LAYOUT),
        tokenizer=bpe,
      )
    prepare(
      Options(source, out / "x", merge_only=True, **LAYOUT), tokenizer=bpe
    )
    assert (kept(), files(out)) == expected


def test_beam_with_two_processes_gives_the_same_bytes(
  beam, source, tmp_path, bpe, *, kept, expected, capfd
):
  check(
    source,
    tmp_path / "beam",
    bpe,
    kept,
    expected=expected,
    runner="beam",
    beam_options=TWO_PROCESSES,
  )
  # Beam has nothing to say.
  assert capfd.readouterr() == ("", "")


def test_a_ray_cluster_gives_the_same_bytes(
  ray, source, tmp_path, bpe, *, kept, expected, monkeypatch
):
  wait, given_out = ray.wait, []

  def counted(refs, **options):
    given_out.append(len(refs))
    # As if each of them took long.
    return wait(refs, **options | {"timeout": 0.01})

  monkeypatch.setattr(ray, "wait", counted)
  check(source, tmp_path / "ray", bpe, kept, expected=expected, runner="ray")
  assert max(given_out) == 4, "two for each processor"
  assert ray.is_initialized(), "it is not ours to end"


@pytest.mark.parametrize("runner", ["local", "beam", "ray"])
def test_a_bad_record_is_one_line_and_what_is_done_is_kept(
  source, tmp_path, bpe, *, runner, request, monkeypatch
):
  options = LAYOUT | {"unit_bytes": 1000, "runner": runner}
  if runner == "local":
    monkeypatch.setattr(engine, "SMALL_INPUT_BYTES", 0)
  elif runner == "beam":
    request.getfixturevalue("beam")
    # One process after the other: what comes before is done.
    options["beam_options"] = ("--direct_running_mode=in_memory",)
  else:
    request.getfixturevalue("ray")
  bad = json_lines(TEXTS[:7]).replace('"nine"', "9")
  (source / "b.jsonl").write_text(bad)
  out = tmp_path / "out"
  with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
    prepare(Options(source, out / "x", **options), tokenizer=bpe)
  assert str(caught.value).startswith(
    f"{source / 'b.jsonl'}: record 6 (line 6, at byte offset "
  )
  assert "holds a number under 'text'" in str(caught.value)
  # Both units of two processes are begun at once, and none may be done.
  left = {path.name for path in out.glob("*.parts/*")}
  assert not [name for name in left if name.endswith((".job", ".tmp"))]
  if runner == "beam":
    assert "00000000.unit" in left and "00000001.error" in left


@pytest.mark.parametrize(
  ("runner", "package"), [("beam", "apache_beam"), ("ray", "ray")]
)
def test_an_engine_that_is_not_installed_is_named(
  source, tmp_path, bpe, monkeypatch, *, runner, package
):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(
    ValueError, match=rf"needs the package {package}.*'hpgrain\[{runner}\]'"
  ):
    prepare(Options(source, tmp_path / "o" / "x", runner=runner), tokenizer=bpe)
  assert not (tmp_path / "o").exists()


def test_too_many_bad_records_in_all_end_the_pipeline(
  ray, source, tmp_path, bpe
):
  bad = json_lines(TEXTS).replace('"nine"', "9")
  (source / "a.jsonl").write_text(bad)
  options = {"on_bad_record": "skip", "max_bad_records": 4, "runner": "ray"}
  with pytest.raises(ValueError, match="--max-bad-records=4 allows"):
    prepare(
      Options(source, tmp_path / "o" / "x", **LAYOUT | options), tokenizer=bpe
    )


def test_a_ray_cluster_that_does_not_answer_is_told_soon(
  source, tmp_path, bpe, monkeypatch
):
  pytest.importorskip("ray", reason="hpgrain[ray] is not installed")
  from hpgrain.tools.runners import ray_runner

  monkeypatch.setattr(ray_runner.ray, "is_initialized", lambda: False)
  for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
    with pytest.raises(
      ConnectionError, match=f"No Ray cluster answers at {address} "
    ):
      prepare(
        Options(
          source,
          tmp_path / "o" / "x",
          runner="ray",
          ray_address=address,
          log_interval=0,
        ),
        tokenizer=bpe,
      )


def test_no_engine_is_imported_before_it_is_asked_for():
  code = (
    "import sys\nimport hpgrain.tools.offline_preparation\n"
    "import hpgrain.tools.runners.beam_runner\n"
    "print([m for m in ('ray', 'apache_beam', 'jax') if m in sys.modules])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout == "[]\n"
