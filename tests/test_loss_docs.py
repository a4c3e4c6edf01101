"""docs/loss.md against the code: it runs, and prints what it says.

Its Python is one program, run from top to bottom in a process of its own, as it
asks for eight devices before JAX is imported.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hpgrain
from hpgrain import loss
from hpgrain.config_schema import BY_NAME

_ROOT = Path(__file__).parents[1]
_TEXT = (_ROOT / "docs/loss.md").read_text("utf-8")


def _blocks():
  """(language, text) of each block, in order."""
  return re.findall(r"```(\w+)\n(.*?)```", _TEXT, re.DOTALL)


_NUMBER = r"\d+\.\d+"


def test_it_prints_what_it_says(tmp_path):
  program = "".join(
    text for language, text in _blocks() if language == "python"
  )
  # What follows a block of Python is what it prints.
  printed = [
    text
    for (before, _), (language, text) in zip(_blocks(), _blocks()[1:])
    if (before, language) == ("python", "text")
  ]
  assert len(printed) == 6
  (tmp_path / "page.py").write_text(program)
  done = subprocess.run(
    [sys.executable, "page.py"],
    capture_output=True,
    text=True,
    cwd=tmp_path,
    timeout=500,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  texts = (done.stdout, "".join(printed))
  found, expected = (re.sub(_NUMBER, "#", text) for text in texts)
  assert found == expected
  # The last digit may be off by one on another processor.
  found, expected = (
    [float(number) for number in re.findall(_NUMBER, text)] for text in texts
  )
  assert found == pytest.approx(expected, abs=2e-4)


def test_what_it_says_of_its_numbers_holds():
  rows = re.findall(r"^cp=(\d)  (\w.*?) +([\d.]+)  ([\d.]+)$", _TEXT, re.M)
  found = {
    (int(cp), name): (float(value), float(norm))
    for cp, name, value, norm in rows
  }
  right = found[1, "per token"]
  for cp in (1, 2, 4):
    assert found[cp, "per token"] == right
    for wrong, number in zip(found[cp, "averaged over cp"], right):
      assert abs(wrong - number / cp) < 1e-4
    assert abs(found[cp, "mean of means"][1] - right[1]) > 1e-3
  on_slices = re.findall(r"^(?:jit|shard_map) +(.*)$", _TEXT, re.M)
  assert len(on_slices) == 2 and len(set(on_slices)) == 1
  assert re.search(r"^sums +off by 0\.00%$", _TEXT, re.M)


def test_it_names_what_slices_are_refused_by():
  """Those that test_loss.py calls inside shard_map."""
  refused, allowed = re.search(
    r"is an error inside:(.*?)begins\.(.*?)may be called", _TEXT, re.DOTALL
  ).groups()
  named = set(re.findall(r"`(\w+)`", refused))
  source = (_ROOT / "hpgrain/loss.py").read_text("utf-8")
  assert named == set(re.findall(r'_refuse_slices\("(\w+)"', source))
  others = set(re.findall(r"`(\w+)`", allowed))
  assert not others & named
  assert others | named == set(re.findall(r"^def ([a-z]\w+)", source, re.M))


def test_its_keys_and_functions_are_there():
  text = re.sub(r"```.*?```", "", _TEXT, flags=re.DOTALL)
  keys = re.findall(r"`((?:get_batch|mesh|dataset|dataloader)\.\w+)", text)
  assert len(keys) > 4
  assert set(keys) <= BY_NAME.keys()
  named = set(re.findall(r"\bloss\.(\w+)\(", _TEXT))
  assert len(named) > 4
  for name in named:
    assert hasattr(loss, name)
  for name in set(re.findall(r"hpgrain\.(num_\w+)\(", _TEXT)):
    assert name in hpgrain._HOMES


def test_what_it_links_is_there():
  for link in re.findall(r"\]\((?!http|#)([^)#]+)", _TEXT):
    assert (_ROOT / "docs" / link).exists(), link
  headings = {
    re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
    for heading in re.findall(r"^#+ (.*)$", _TEXT, re.M)
  }
  assert set(re.findall(r"\]\(#([\w-]+)\)", _TEXT)) <= headings
