import signal
import subprocess
import sys
import time

import pytest
from preparation_twin import json_lines

from hpgrain.tokenizer import load_tokenizer
from hpgrain.tools.corpus import prepare
from hpgrain.tools.options import Options

# Slower where the test wants to be quicker, with nothing else changed.
DRIVER = """
import functools, sys
from hpgrain.tools import engine, merge, offline_preparation, unit_batches
phase = sys.argv.pop(1)
offline_preparation.Options = functools.partial(
  offline_preparation.Options, unit_bytes=1 << 16
)
if phase in ("tokenizing", "workers"):
  unit_batches.BATCH_RECORDS = 1
if phase == "workers":
  engine.SMALL_INPUT_BYTES = 0
if phase == "merging":
  merge._BLOCK_RECORDS = 1
sys.exit(offline_preparation.main(sys.argv[1:]))
"""
# What it says as it comes to each phase.
SAID = {
  "starting": "Only tokenizers that Hugging Face AutoTokenizer loads",
  "tokenizing": "tokenizing: ",
  "workers": "tokenizing: ",
  "merging": "merging text: ",
}


OPTIONS = {
  "tokenizer_backend": "huggingface",
  "log_interval": 0,
  "unit_bytes": 1 << 16,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
  path = tmp_path_factory.mktemp("source") / "in.jsonl"
  path.write_text(json_lines(["a b c d e " * 6] * 10_000))
  return path


@pytest.fixture(scope="module")
def whole(source, word_folder):
  """The files of a run that nobody interrupts."""
  out = source.parent / "whole"
  prepare(
    Options(source, out / "x", **OPTIONS), tokenizer=load_tokenizer(word_folder)
  )
  return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("phase", list(SAID))
def test_an_interrupt_stops_at_once_and_the_same_command_goes_on(
  tmp_path, source, whole, words, *, word_folder, phase
):
  out = tmp_path / "out"
  process = subprocess.Popen(
    [
      *(sys.executable, "-c", DRIVER, phase),
      f"--dataset-name-or-path={source}",
      f"--output-prefix={out}/x",
      f"--tokenizer-name-or-path={word_folder}",
      *("--tokenizer-backend=huggingface", "--log-interval=1"),
      "--workers=2",
    ],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  for line in process.stderr:
    if SAID[phase] in line:
      break
  else:
    pytest.fail(f"it ended before: {process.communicate()}")
  if phase == "starting":
    # Well into the imports that take seconds.
    time.sleep(0.3)
  start = time.monotonic()
  process.send_signal(signal.SIGINT)
  said, errors = process.communicate(timeout=60)
  took = time.monotonic() - start
  assert process.returncode == 130, errors
  assert took < 10, "a batch, not a unit, is what it finishes"
  assert "Traceback" not in errors and said == ""
  lines = [line for line in errors.splitlines() if not line.startswith(" ")]
  parts = out / "x_text_document.parts"
  kept = len(list(parts.glob("*.unit"))) if parts.exists() else 0
  assert "offline_preparation: interrupted" in lines[-1 - bool(kept)]
  if kept:
    assert lines[-1].startswith(f"Finished work is kept in {parts}")
  assert kept or phase != "merging"
  # Nothing half written, and nothing under a final name.
  names = {path.name for path in out.iterdir()} if out.exists() else set()
  assert names <= {parts.name}
  assert not parts.exists() or not list(parts.glob("*.tmp"))

  report = prepare(Options(source, out / "x", **OPTIONS), tokenizer=words)
  assert (report.num_reused, report.num_done) == (kept, report.num_units - kept)
  assert {path.name: path.read_bytes() for path in out.iterdir()} == whole
