import json
import os
import pty
import re
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from hpgrain.tools import progress, unit_batches
from hpgrain.tools.corpus import prepare_corpus
from hpgrain.tools.progress import Progress


@pytest.fixture
def every_line(monkeypatch):
  monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)


def write(folder, texts):
  path = folder / "in.jsonl"
  path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
  return path


def test_a_log_gets_a_line_an_interval_of_both_phases(
  tmp_path, words, monkeypatch, capsys, every_line
):
  monkeypatch.setattr(unit_batches, "BATCH_RECORDS", 1)
  source = write(tmp_path, ["a"] * 5)
  options = {"output_prefix": tmp_path / "x", "tokenizer": words}
  prepare_corpus(source, log_interval=2, **options)
  said = capsys.readouterr().err.splitlines()
  # Of five records; how much of the last one's line is read is a guess.
  assert [line.split("%")[0] for line in said] == [
    "tokenizing: 2 documents, 4 tokens, 20",
    "tokenizing: 4 documents, 8 tokens, 60",
    "merging text: 5 documents, 10 tokens, 100",
  ]
  assert re.search(r"%, \d+\.\d MB/s, \d+ s left$", said[0])
  prepare_corpus(source, log_interval=0, overwrite=True, **options)
  assert capsys.readouterr().err == ""


def test_lines_are_a_second_apart_whatever_the_interval(capsys):
  with Progress(1000, 1) as shown:
    for _ in range(1000):
      shown.update(1, 1, 1)
  assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_an_earlier_run_did_is_in_the_share_and_not_in_the_rate(
  capsys, every_line, monkeypatch
):
  clock = iter([10.0, 12.0])
  monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
  with Progress(10_000_000, 1, done_bytes=4_000_000) as shown:
    shown.update(1, 7, 2_000_000)
  assert capsys.readouterr().err == (
    "tokenizing: 1 documents, 7 tokens, 60%, 1.0 MB/s, 4 s left\n"
  )


SHOW = """
import time
from hpgrain.tools.progress import Progress
import sys
with Progress(10_000_000, int(sys.argv[1]), what="merging text") as shown:
  for _ in range(4):
    time.sleep(0.15)
    shown.update(1000, 5000, 2_500_000)
"""


def on_terminal(*command, columns=100):
  """What a command writes to a terminal; with 0 columns it tells no size."""
  ours, theirs = pty.openpty()
  termios.tcsetwinsize(theirs, (40 if columns else 0, columns))
  process = subprocess.Popen(
    [sys.executable, *command],
    stdin=theirs,
    stdout=theirs,
    stderr=theirs,
    env={**os.environ, "TERM": "xterm"},
  )
  os.close(theirs)
  said = []

  def read():
    try:
      while block := os.read(ours, 4096):
        said.append(block)
    except OSError:
      # So the end of a terminal reads.
      pass

  reader = threading.Thread(target=read)
  reader.start()
  assert process.wait(timeout=120) == 0
  reader.join()
  os.close(ours)
  return b"".join(said).decode()


@pytest.mark.parametrize("columns", [100, 130, 0])
def test_a_terminal_shows_documents_tokens_rate_and_time_left(columns):
  said = on_terminal("-c", SHOW, "1000", columns=columns)
  drawn = said.split("\r")
  assert len(drawn) > 3, "it is drawn anew"
  assert any(
    re.fullmatch(
      r"merging text +\d+% \|.*\| [\d.]+MB/s, 00:0\d left,"
      r" [1-3],000 documents, \d+,000 tokens *",
      line,
    )
    for line in drawn
  ), said
  assert max(map(len, drawn)) == (columns - 1 if columns else 100)
  assert "merging text 100%" in drawn[-2]


def test_a_terminal_shows_nothing_without_an_interval():
  assert on_terminal("-c", SHOW, "0") == ""


@pytest.mark.parametrize("interval", ["1000", "0"])
def test_the_command_on_a_terminal(tmp_path, word_folder, interval):
  source = write(tmp_path, ["a b c"] * 3000)
  said = on_terminal(
    *("-W", "ignore", "-m", "hpgrain.tools.offline_preparation"),
    f"--dataset-name-or-path={source}",
    f"--output-prefix={tmp_path}/x",
    f"--tokenizer-name-or-path={word_folder}",
    f"--log-interval={interval}",
  )
  shown = ("tokenizing 100%" in said, "merging text 100%" in said)
  assert shown == ((True, True) if interval == "1000" else (False, False)), said
  assert "3,000, in 3,000 sequences" in said
  assert Path(f"{tmp_path}/x_text_document.idx").exists()
