import ast
import io
import logging
import sys
import types
from pathlib import Path

import pytest

from hpgrain import log
from hpgrain.log import enable_dataset_logging, log_once

_PACKAGE = Path(__file__).parents[1] / "hpgrain"
_LOGGER = logging.getLogger("hpgrain.some_module")


@pytest.fixture(autouse=True)
def _default_logging_afterwards(monkeypatch):
  monkeypatch.setattr(log, "_said", set())
  yield
  enable_dataset_logging(None)


def _bare_program(monkeypatch):
  """Makes a program that has set up no logging; pytest adds handlers late."""
  monkeypatch.setattr(logging.getLogger(), "handlers", [])


def _fake_jax(monkeypatch, *, initialized, index):
  def process_index():
    assert initialized, "asked before the program was distributed"
    return index

  distributed = types.SimpleNamespace(is_initialized=lambda: initialized)
  fake = types.SimpleNamespace(
    distributed=distributed, process_index=process_index
  )
  monkeypatch.setitem(sys.modules, "jax", fake)


def _log_all():
  _LOGGER.debug("rows %d", 1)
  _LOGGER.info("rows %d", 2)
  _LOGGER.warning("rows %d", 3)


def _shown(capsys):
  return [
    line.split(" ", 2)[2] for line in capsys.readouterr().err.split("\n")[:-1]
  ]


def test_only_warnings_are_shown_by_default(monkeypatch, capsys):
  _bare_program(monkeypatch)
  _log_all()
  assert capsys.readouterr().err == "rows 3\n"


@pytest.mark.parametrize(
  ("level", "rows"),
  [("debug", [1, 2, 3]), ("info", [2, 3]), ("warn", [3]), ("warning", [3])],
)
def test_a_level_shows_records_from_there_up(level, rows, monkeypatch, capsys):
  _bare_program(monkeypatch)
  enable_dataset_logging(level)
  _log_all()
  names = {1: "DEBUG", 2: "INFO", 3: "WARNING"}
  assert _shown(capsys) == [
    f"{names[row]} hpgrain.some_module: rows {row}" for row in rows
  ]


def test_records_go_to_the_programs_handlers_once(monkeypatch, capsys):
  _bare_program(monkeypatch)
  stream = io.StringIO()
  enable_dataset_logging("info")
  enable_dataset_logging("debug")
  logging.getLogger().addHandler(logging.StreamHandler(stream))
  _log_all()
  logging.getLogger("other").info("not ours")
  assert stream.getvalue() == "rows 1\nrows 2\nrows 3\n"
  assert capsys.readouterr().err == ""


def test_none_follows_the_program_again(monkeypatch, capsys):
  _bare_program(monkeypatch)
  enable_dataset_logging("debug", ranks=None)
  enable_dataset_logging(None)
  _log_all()
  assert capsys.readouterr().err == "rows 3\n"
  monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
  logging.Logger.manager._clear_cache()
  stream = io.StringIO()
  logging.getLogger().addHandler(logging.StreamHandler(stream))
  _log_all()
  assert stream.getvalue() == "rows 2\nrows 3\n"
  monkeypatch.undo()
  logging.Logger.manager._clear_cache()


@pytest.mark.parametrize(
  ("ranks", "index", "shown"),
  [
    (0, 0, True),
    (0, 1, False),
    (1, 1, True),
    ((1, 3), 3, True),
    ([1, 3], 2, False),
    ((), 0, False),
    (None, 5, True),
  ],
)
def test_ranks_choose_the_processes(ranks, index, shown, monkeypatch, capsys):
  _bare_program(monkeypatch)
  _fake_jax(monkeypatch, initialized=True, index=index)
  enable_dataset_logging("debug", ranks=ranks)
  _log_all()
  # The others go on following the program: warnings are theirs too.
  assert len(_shown(capsys)) == (3 if shown else 1)


def test_jax_is_not_asked_before_it_is_distributed(monkeypatch, capsys):
  _bare_program(monkeypatch)
  _fake_jax(monkeypatch, initialized=False, index=1)
  enable_dataset_logging("debug", ranks=0)
  _log_all()
  assert len(_shown(capsys)) == 3
  _fake_jax(monkeypatch, initialized=True, index=1)
  _log_all()
  assert len(_shown(capsys)) == 1


def test_without_jax_a_process_counts_as_0(monkeypatch, capsys):
  _bare_program(monkeypatch)
  monkeypatch.delitem(sys.modules, "jax", raising=False)
  enable_dataset_logging("info", ranks=0)
  _log_all()
  assert len(_shown(capsys)) == 2
  assert "jax" not in sys.modules


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"level": "debg"}, r"'info' or 'warn', got 'debg'\. Did you mean 'debug'"),
    ({"level": "error"}, r"must be 'debug', 'info' or 'warn', got 'error'"),
    ({"ranks": -1}, r"ranks must be a process index, .*; got -1\."),
    ({"ranks": (0, "1")}, r"got \(0, '1'\)"),
    ({"ranks": True}, r"got True"),
    ({"ranks": 1.5}, r"got 1\.5"),
    ({"ranks": "0"}, r"got '0'"),
  ],
)
def test_wrong_arguments_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    enable_dataset_logging(**arguments)
  assert not logging.getLogger("hpgrain").handlers


def test_log_once_says_a_thing_once(monkeypatch, capsys):
  _bare_program(monkeypatch)
  for cache in ("/a", "/b", "/a"):
    log_once(_LOGGER, logging.WARNING, "cannot write %s", cache)
  assert capsys.readouterr().err == "cannot write /a\ncannot write /b\n"


# Names that hold a sample's content. Their sizes may be logged.
_CONTENT = {
  "content",
  "conversation",
  "decoded",
  "document",
  "example",
  "input_ids",
  "ids",
  "labels",
  "line",
  "messages",
  "record",
  "row",
  "sample",
  "text",
  "texts",
  "token",
  "tokens",
}
_SIZES = {"dtype", "nbytes", "shape", "size", "itemsize"}
_LEVELS = {
  *("debug", "info", "warning", "warn", "error", "exception", "critical"),
  *("log", "log_once"),
}
_HOT = {
  *("__getitem__", "__next__", "plan", "plan_rows", "read", "segments"),
  *("gather", "get", "locate", "make_fields"),
}


def _is_log_call(node):
  if not isinstance(node, ast.Call):
    return False
  if isinstance(node.func, ast.Name):
    return node.func.id == "log_once"
  if not isinstance(node.func, ast.Attribute):
    return False
  owner = ast.unparse(node.func.value).lower()
  return node.func.attr in _LEVELS and "log" in owner


def _content_in(node):
  """The content-bearing names under `node`, leaving out their sizes."""
  if isinstance(node, ast.Call) and ast.unparse(node.func) in ("len", "type"):
    return set()
  if isinstance(node, ast.Attribute) and node.attr in _SIZES:
    return set()
  found = set()
  if isinstance(node, ast.Name):
    found |= {node.id} & _CONTENT
  if isinstance(node, ast.Attribute):
    found |= {node.attr} & _CONTENT
  if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
    found |= {node.slice.value} & _CONTENT
  for child in ast.iter_child_nodes(node):
    found |= _content_in(child)
  return found


def _faults(source):
  tree = ast.parse(source)
  faults = []
  for node in ast.walk(tree):
    if _is_log_call(node):
      names = set()
      for argument in [*node.args, *[k.value for k in node.keywords]]:
        names |= _content_in(argument)
      faults += [f"line {node.lineno} logs {name}" for name in sorted(names)]
    if isinstance(node, ast.FunctionDef) and node.name in _HOT:
      faults += [
        f"line {inner.lineno} logs in {node.name}"
        for inner in ast.walk(node)
        if _is_log_call(inner)
      ]
  return faults


@pytest.mark.parametrize(
  ("source", "faults"),
  [
    ("logger.info('read %s', text)", ["line 1 logs text"]),
    ("_LOG.debug(f'{record[0]}')", ["line 1 logs record"]),
    (
      "logging.error(sample['tokens'])",
      ["line 1 logs sample", "line 1 logs tokens"],
    ),
    ("log_once(logger, 1, '%s', x.text)", ["line 1 logs text"]),
    ("logger.info('%d tokens', len(tokens))", []),
    ("logger.info('%s', tokens.shape)", []),
    ("print(text)", []),
    ("def __next__(self):\n  logger.debug('x')", ["line 2 logs in __next__"]),
  ],
)
def test_the_scan_of_log_calls_finds_planted_faults(source, faults):
  assert _faults(source) == faults


@pytest.mark.parametrize(
  "path", sorted(_PACKAGE.rglob("*.py")), ids=lambda p: p.name
)
def test_log_calls_hold_no_text_and_no_row_logs(path):
  # `log.py` passes finished messages on, and is tested above.
  if path.name != "log.py":
    assert _faults(path.read_text(encoding="utf-8")) == []
