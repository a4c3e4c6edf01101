"""docs/attention.md against the code: its examples are run in one program."""

import re
import shlex
from pathlib import Path

import pytest
from absl import flags
from ml_collections import config_flags

from hpgrain.attention_adapters import ADAPTERS
from hpgrain.attention_adapters.by_keywords import KEYWORDS
from hpgrain.config import check
from hpgrain.context_layout import LAYOUTS

_ROOT = Path(__file__).parents[2]
_TEXT = (_ROOT / "docs/attention.md").read_text("utf-8")


def _blocks(language):
  return re.findall(rf"```{language}\n(.*?)```", _TEXT, re.DOTALL)


def test_its_examples_run(monkeypatch):
  monkeypatch.syspath_prepend(_ROOT)
  names = {}
  run = 0
  for block in _blocks("python"):
    code = compile(block, "docs/attention.md", "exec")
    if not block.startswith("# On a GPU"):
      exec(code, names)
      run += 1
  assert run == 6


def test_what_it_compares_can_differ(monkeypatch):
  names = {}
  exec(_blocks("python")[0], names)
  with pytest.raises(AssertionError, match="Not equal to tolerance"):
    names["compare"](names["value"])


def test_its_command_is_legal(monkeypatch):
  monkeypatch.chdir(_ROOT)
  (text,) = _blocks("sh")
  python, *arguments = shlex.split(text.replace("\\\n", " "))
  assert (python, arguments[0]) == ("python", "launch/train.py")
  values = flags.FlagValues()
  holder = config_flags.DEFINE_config_file(
    "config", flag_values=values, lock_config=True, sys_argv=arguments
  )
  values(arguments, known_only=True)
  found = check(holder.value).get_batch
  assert found.attention_adapter == "context_parallel"
  assert holder.value.model.attention == "ring"


@pytest.mark.parametrize("name", [*ADAPTERS, *LAYOUTS, *KEYWORDS])
def test_it_names_all_there_is(name):
  assert f"`{name}`" in _TEXT
