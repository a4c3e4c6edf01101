import subprocess
import sys

import pytest

import hpgrain


def test_every_public_name_is_there_and_listed():
  for name in (*hpgrain._HOMES, "checkpoint", "index"):
    assert getattr(hpgrain, name) is not None
    assert name in dir(hpgrain)


def test_any_module_is_reached_by_its_name():
  from hpgrain import attention

  assert hpgrain.attention is attention
  with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
    _ = hpgrain.nothing


@pytest.mark.parametrize("module", ["hpgrain", "hpgrain.tools.corpus"])
def test_importing_it_loads_no_jax(module):
  code = f"import sys, {module}; print('jax' in sys.modules)"
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout == "False\n"
