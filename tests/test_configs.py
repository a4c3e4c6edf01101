import ast
import re
from pathlib import Path

import pytest
from absl import flags
from ml_collections import config_flags

from hpgrain.config import check
from hpgrain.config_key import NAMES, NUMBERS, PATHS
from hpgrain.config_schema import BY_NAME, KEYS
from hpgrain.data_paths import SourceEntry

_ROOT = Path(__file__).parents[1]
_CONFIGS = sorted((_ROOT / "configs").glob("*.py"))
_MOCK = str(_ROOT / "configs/mock.py")


def _parse(config, *arguments):
  """The config that launch/train.py would get for these arguments."""
  argv = ["train.py", f"--config={config}", *arguments]
  values = flags.FlagValues()
  holder = config_flags.DEFINE_config_file(
    "config", flag_values=values, lock_config=True, sys_argv=argv
  )
  left = values(argv)
  assert left == ["train.py"]
  return holder.value


def _get(config, name):
  for part in name.split("."):
    config = config[part]
  return config


def test_the_configs_are_those_of_the_readme():
  assert [path.stem for path in _CONFIGS] == [
    "context_parallel",
    "indexed_blend",
    "indexed_documents",
    "indexed_packed",
    "indexed_precut",
    "megatron",
    "mock",
    "online_blend",
    "online_conversation",
    "online_iterable_dynamic",
    "online_iterable_fixed",
    "online_mapping_dynamic",
    "online_mapping_fixed",
    "online_pretokenized",
    "quickstart",
  ]


@pytest.mark.parametrize("path", _CONFIGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("arg", ["", ":runlocal"])
def test_every_config_loads_and_is_valid(path, arg):
  config = check(_parse(f"{path}{arg}"))
  # launch/train.py replaces {workdir}: whatever is prepared lies below it.
  assert ("{workdir}/data/" in str(config)) == (config.prepare is not None)
  if path.stem != "mock":
    assert config.prepare == "embedded_example"
  if arg:
    assert config.training.train_iters == 3
    assert (config.mesh.data, config.mesh.cp, config.mesh.tp) == (-1, 1, 1)
  else:
    assert config.training.train_iters <= 1000


@pytest.mark.parametrize("path", _CONFIGS, ids=lambda path: path.stem)
def test_every_config_has_its_command_on_top(path):
  docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
  # A folder each: two configs do not resume each other's runs.
  workdir = {
    "context_parallel": "/tmp/ring",
    "quickstart": "/tmp/hpgrain",
    "indexed_blend": "/tmp/blend",
    "indexed_documents": "/tmp/docs",
    "indexed_packed": "/tmp/packed",
    "indexed_precut": "/tmp/precut",
    "megatron": "/tmp/megatron",
    "mock": "/tmp/mock",
    "online_blend": "/tmp/online_blend",
    "online_conversation": "/tmp/conversation",
    "online_iterable_dynamic": "/tmp/iterable_dynamic",
    "online_iterable_fixed": "/tmp/iterable_fixed",
    "online_mapping_dynamic": "/tmp/mapping_dynamic",
    "online_mapping_fixed": "/tmp/mapping_fixed",
    "online_pretokenized": "/tmp/pretokenized",
  }[path.stem]
  command = (
    f"python launch/train.py --config=configs/{path.name} --workdir={workdir}"
  )
  # A long one goes on in the next line.
  said = docstring.replace(" \\\n  --workdir", " --workdir")
  assert f"Command to run:\n\n{command}\n" in said + "\n"


def test_every_documented_override_names_a_key():
  texts = [path.read_text(encoding="utf-8") for path in _CONFIGS]
  texts += [
    p.read_text(encoding="utf-8") for p in (_ROOT / "docs").glob("*.md")
  ]
  if (_ROOT / "README.md").exists():
    texts.append((_ROOT / "README.md").read_text(encoding="utf-8"))
  names = {
    name
    for text in texts
    for name in re.findall(r"--config\.([\w.]+\w)=", text)
  }
  assert "prepare" in names
  assert names <= BY_NAME.keys()


def _sample(key):
  """A flag's text for `key`, other than its default, and the value it means."""
  if key.kind is bool:
    value = not key.default
    return str(value).lower(), value
  if key.legal:
    return key.legal[-1], key.legal[-1]
  if key.kind is int:
    value = (key.default or key.minimum) + 1
    return str(value), value
  if key.kind is float:
    return "1e-4", 1e-4
  if key.kind in (tuple, NAMES):
    return "('cp', 'data')", ("cp", "data")
  if key.kind == NUMBERS:
    return "(64, 128)", (64, 128)
  return ("/data/x", "/data/x") if key.kind == PATHS else ("words", "words")


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_key_takes_a_flag(key):
  text, value = _sample(key)
  config = _parse(_MOCK, f"--config.{key.name}={text}")
  assert _get(config, key.name) == value
  assert type(_get(config, key.name)) is type(value)


_X = "/data/x"


@pytest.mark.parametrize(
  ("name", "text", "value"),
  [
    ("data_path", _X, _X),
    ("data_path", "relative/x", "relative/x"),
    ("data_path", "gs://bucket/x", "gs://bucket/x"),
    ("data_path", "/data/my books", "/data/my books"),
    ("data_path", "{workdir}/data/x", "{workdir}/data/x"),
    ("data_path", "('/a', '/b')", (SourceEntry("/a"), SourceEntry("/b"))),
    ("data_path", "['/a', '/b']", (SourceEntry("/a"), SourceEntry("/b"))),
    (
      "data_path",
      "(0.7, '/a', 0.3, '/b')",
      (SourceEntry("/a", 0.7), SourceEntry("/b", 0.3)),
    ),
    (
      "data_path",
      "('0.7', '/a', '0.3', '/b')",
      (SourceEntry("/a", 0.7), SourceEntry("/b", 0.3)),
    ),
    (
      "data_path",
      "({'path': '/a', 'weight': 7, 'name': 'n'}, {'path': '/b', 'weight': 3})",
      (SourceEntry("/a", 7, "n"), SourceEntry("/b", 3)),
    ),
    ("data_path", "{'path': '/a'}", (SourceEntry("/a"),)),
    ("data_path", "./7", "./7"),
  ],
)
@pytest.mark.parametrize("config", ["quickstart", "indexed_documents"])
def test_data_paths_as_flags(config, name, text, value):
  # One config sets a tuple, the other a string: neither fixes the type.
  path = _ROOT / f"configs/{config}.py"
  config = check(_parse(path, f"--config.dataset.{name}={text}"))
  assert config.dataset[name] == value


def test_split_paths_replace_the_shared_one():
  config = check(
    _parse(
      _ROOT / "configs/quickstart.py",
      "--config.dataset.data_path=None",
      "--config.dataset.train_data_path=(1, '/a', 2, '/b')",
      "--config.dataset.valid_data_path=/c",
    )
  )
  assert config.dataset.data_path is None
  assert config.dataset.train_data_path == (
    SourceEntry("/a", 1),
    SourceEntry("/b", 2),
  )
  assert config.dataset.valid_data_path == "/c"


@pytest.mark.parametrize(
  ("flag", "name", "value"),
  [
    ("dataset.data_config.simple_blend=no", None, "no"),
    ("dataset.data_config.simple_blend=False", None, "no"),
    ("dataset.data_config.simple_blend=false", None, "no"),
    ("prepare=none", None, None),
    ("prepare=None", None, None),
    ("dataloader.drop_last=true", "dataloader.end_of_data", "drop"),
    ("dataloader.drop_last=false", "dataloader.end_of_data", "pad"),
    ("dataloader.epochs=3", None, 3),
    ("debug.check_dataset=debug", None, "debug"),
    ("get_batch.sliding_window=128", None, 128),
    ("mesh.axes=('data', 'tp', 'cp')", None, ("data", "tp", "cp")),
    ("mesh.data_axes=('data',)", None, ("data",)),
    ("mesh.sizes=(-1, 2, 1)", None, (-1, 2, 1)),
    ("optimizer.learning_rate=1", None, 1.0),
    ("training.train_iters=3", None, 3),
    ("dataset.data_config.split=98, 1, 1", None, "98, 1, 1"),
    ("dataset.data_config.split=1", None, "1"),
  ],
)
def test_values_as_flags_pass_the_check(flag, name, value):
  config = check(_parse(_MOCK, f"--config.{flag}"))
  assert _get(config, name or flag.partition("=")[0]) == value


def test_bool_flags_have_their_short_forms():
  config = check(
    _parse(
      _MOCK,
      "--noconfig.dataset.data_config.mmap",
      "--config.dataloader.drop_last",
    )
  )
  assert config.dataset.data_config.mmap is False
  assert config.dataloader.drop_last is True


def test_a_data_path_without_an_equals_sign_is_refused():
  path = _ROOT / "configs/quickstart.py"
  argv = ["train.py", f"--config={path}", "--config.dataset.data_path", "/x"]
  values = flags.FlagValues()
  holder = config_flags.DEFINE_config_file(
    "config", flag_values=values, sys_argv=argv
  )
  # The flag parser takes /x for an argument of the program.
  assert values(argv) == ["train.py", "/x"]
  with pytest.raises(ValueError, match=r"got True\. A flag needs `=`"):
    check(holder.value)


@pytest.mark.parametrize(
  ("config", "arguments", "error", "message"),
  [
    (
      _MOCK,
      ["--config.training.train_itrs=3"],
      AttributeError,
      r'[Dd]id you mean "?train_iters',
    ),
    (
      _MOCK,
      ["--config.training.train_iters=three"],
      flags.IllegalFlagValueError,
      r"--config\.training\.train_iters=three",
    ),
    (
      f"{_MOCK}:seq_len=3",
      [],
      flags.IllegalFlagValueError,
      r"no argument 'seq_len'\. Did you mean 'seq_length'",
    ),
    (
      f"{_MOCK}:seq_length=x",
      [],
      flags.IllegalFlagValueError,
      r"'seq_length' is of type int, got 'seq_length=x'",
    ),
  ],
)
def test_wrong_flags_are_refused(config, arguments, error, message):
  with pytest.raises(error, match=message):
    _parse(config, *arguments)


def test_a_misspelt_key_in_a_file_fails_where_it_is_set(tmp_path):
  path = tmp_path / "mine.py"
  path.write_text(
    "from hpgrain.config import base_config\n"
    "def get_config():\n"
    "  config = base_config()\n"
    "  config.training.train_itrs = 3\n"
    "  return config\n"
  )
  with pytest.raises(AttributeError, match=r'Did you mean "train_iters"'):
    _parse(path)


def test_a_file_may_add_a_mesh_axis(tmp_path):
  path = tmp_path / "mine.py"
  path.write_text(
    "from hpgrain.config import base_config\n"
    "def get_config():\n"
    "  config = base_config()\n"
    "  config.dataset.data_path = '/a'\n"
    "  config.mesh.axes = ('replica', 'data', 'cp', 'tp')\n"
    "  config.mesh.replica = 2\n"
    "  return config\n"
  )
  config = check(_parse(path, "--config.mesh.replica=4"))
  assert config.mesh.replica == 4


def test_config_arguments_reach_the_config():
  blend = _parse(f"{_ROOT}/configs/indexed_blend.py:library=0.5,tests=0.5")
  assert [entry.weight for entry in check(blend).dataset.data_path] == [
    0.5,
    0.5,
  ]
  mock = _parse(f"{_MOCK}:seq_length=32,vocab_size=100")
  assert mock.dataset.data_config.seq_length == 32
  assert mock.dataset.data_config.vocab_size == 100


@pytest.mark.parametrize("dataset_type", ["mapping", "iterable"])
@pytest.mark.parametrize("kind", ["fixed", "dynamic"])
def test_a_config_for_each_way_of_reading_and_of_filling_rows(
  dataset_type, kind
):
  config = check(_parse(_ROOT / f"configs/online_{dataset_type}_{kind}.py"))
  assert config.dataset.kind == "online"
  assert config.dataset.data_config.dataset_type == dataset_type
  assert config.dataloader.type == kind


@pytest.mark.parametrize("name", ["conversation", "pretokenized"])
def test_a_config_for_each_other_kind_of_record(name):
  config = check(_parse(_ROOT / f"configs/online_{name}.py"))
  assert config.data_transform.data_type == name


def test_an_online_blend_takes_weights_and_names():
  path = f"{_ROOT}/configs/online_blend.py:library=0.5"
  entries = check(_parse(path)).dataset.data_path
  assert [(entry.name, entry.weight) for entry in entries] == [
    ("library", 0.5),
    ("tests", 0.3),
  ]


@pytest.mark.parametrize(
  ("config", "arguments", "name", "value"),
  [
    (
      "online_conversation",
      ["data_transform.role_names={'bot': 'assistant'}"],
      "data_transform.role_names.bot",
      "assistant",
    ),
    (
      "online_conversation",
      ["data_transform.text_keys=('chat', 'messages')"],
      "data_transform.text_keys",
      ("chat", "messages"),
    ),
    (
      "online_conversation",
      ["data_transform.text_keys=chat"],
      "data_transform.text_keys",
      "chat",
    ),
    (
      "online_mapping_fixed",
      ["dataloader.length_buckets=(256, 1024)"],
      "dataloader.length_buckets",
      (256, 1024),
    ),
    (
      "online_mapping_dynamic",
      ["dataset.data_path=(0.7, '/a.jsonl', 0.3, '/b/*.parquet')"],
      "dataset.data_path",
      (SourceEntry("/a.jsonl", 0.7), SourceEntry("/b/*.parquet", 0.3)),
    ),
    (
      "online_mapping_dynamic",
      ["dataset.data_config.keep_tokens=true"],
      "dataset.data_config.keep_tokens",
      True,
    ),
    (
      "online_mapping_dynamic",
      [
        "dataset.data_config.lengths=stream",
        "dataloader.packer=first_fit",
        "dataloader.min_buffered_samples=20",
      ],
      "dataloader.end_of_data",
      "pad",
    ),
    (
      "online_mapping_dynamic",
      [
        "dataset.data_config.hf_dataset_name=Salesforce/wikitext",
        "dataset.data_config.hf_config_name=wikitext-2-raw-v1",
      ],
      "dataset.data_config.hf_train_split",
      "train",
    ),
  ],
)
def test_values_of_online_data_as_flags_pass_the_check(
  config, arguments, name, value
):
  path = _ROOT / f"configs/{config}.py"
  parsed = _parse(path, *(f"--config.{argument}" for argument in arguments))
  checked = check(parsed)
  assert _get(checked, name) == value
  assert type(_get(checked, name)) is type(value)
