"""The arrows between modules, read from their source.

Rows are made by code that cannot see the mesh: it takes numbers, and no
device, mesh or process count can reach it.
"""

import ast
import functools
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_PACKAGE = _ROOT / "hpgrain"
_MODULES = sorted(
  str(path.relative_to(_PACKAGE).with_suffix(""))
  for path in _PACKAGE.rglob("*.py")
)

# The public surface imports everything.
_SURFACE = "__init__"

# Only these, and launch/, look at devices, meshes or processes ...
_MAY_SEE_DEVICES = {
  "shard",
  "placement",
  "reshard",
  "loader",
  "loader_iterator",
}
# ... checkpoint for the name of a process's part, log to choose who speaks,
# the pipelines to say that they take a Mesh, or how it splits a batch.
_MAY_NAME = {
  "checkpoint": {"process_index", "process_count"},
  "log": {"process_index", "distributed"},
  "pipeline": {"Mesh", "NamedSharding"},
  "explicit_axes": {"NamedSharding", "PartitionSpec"},
  "online_pipeline": {"NamedSharding"},
}

# What makes rows: no jax at all, not even through what it imports.
_ROWS = {
  "records",
  "splits",
  "order",
  "index",
  "blend",
  "gather",
  "samples",
  "precut",
  "measured",
  "measured_together",
  "online_dataset",
  "streams",
  "mock",
  "blend_samples",
  "lazy",
  "data_paths",
  "manifest",
  "token_ids",
  "indexed_dataset",
  "dataset_options",
  "source_opener",
  "buckets",
  "documents_order",
  "eod_segments",
  "index_cache",
  "index_cache_file",
  "index_cache_folder",
  "ltor",
  "megatron",
  "megatron_blend",
  "megatron_order",
  "mixes",
  "rearrange_map",
  "rearranged",
  "split_tokens",
  "stable_order",
  "balance",
  "document_lengths",
  "example_order",
  "length_buckets",
  "online_rows",
  "online_samples",
  "pack",
  "packed_fields",
  "packed_rows",
  "packed_samples",
  "packed_windows",
  "packing",
  "packing_counters",
  "blended_records",
  "chunk_file",
  "examples",
  "fields",
  "hand_over",
  "kept_tokens",
  "lengths_cache",
  "lengths_scan",
  "lengths_table",
  "online_options",
  "online_paths",
  "online_records",
  "packed_dataset",
  "record_batches",
  "scan_counters",
  "stream_barren",
  "stream_counters",
  "stream_dealer",
  "stream_packer",
  "stream_packing",
  "stream_pieces",
  "stream_reader",
  "stream_state",
  "stream_token_rows",
  "token_blocks",
  "token_rows",
  "workers",
  *(name for name in _MODULES if name.startswith("sources/")),
  *(name for name in _MODULES if name.startswith("transforms/")),
}

_DEVICE_NAMES = {
  "AbstractMesh",
  "Mesh",
  "NamedSharding",
  "PartitionSpec",
  "SingleDeviceSharding",
  "addressable_devices",
  "create_device_mesh",
  "device_count",
  "device_put",
  "devices",
  "distributed",
  "local_device_count",
  "local_devices",
  "make_array_from_callback",
  "make_array_from_process_local_data",
  "make_array_from_single_device_arrays",
  "make_mesh",
  "mesh_utils",
  "multihost_utils",
  "process_count",
  "process_index",
  "process_indices",
}


@functools.cache
def _tree(module):
  return ast.parse((_PACKAGE / f"{module}.py").read_text("utf-8"))


def _imports(tree):
  """Names of imported modules, `from a import b` as both a and a.b."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, "imports are absolute"
      yield node.module
      yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _at_top(tree):
  """A module without its functions: what is imported when it is loaded."""
  body = [n for n in tree.body if not isinstance(n, ast.FunctionDef)]
  return ast.Module([n for n in body if not isinstance(n, ast.ClassDef)], [])


def _whole(tree):
  return tree


@functools.cache
def _ours(module, prune=_whole):
  """Modules of the package that a module imports, the surface left out."""
  found = set()
  for name in _imports(prune(_tree(module))):
    path = name.removeprefix("hpgrain.").replace(".", "/")
    if name.startswith("hpgrain.") and path in _MODULES:
      found.add(path)
    elif name.startswith("hpgrain.") and f"{path}/__init__" in _MODULES:
      found.add(f"{path}/__init__")
  return found


def _reaches(module, prune=_whole):
  """Everything of ours that a module imports, directly or not."""
  seen, waiting = set(), [module]
  while waiting:
    for name in _ours(waiting.pop(), prune) - seen:
      seen.add(name)
      waiting.append(name)
  return seen


def _uses_jax(tree):
  return any(name.split(".")[0] in ("jax", "jaxlib") for name in _imports(tree))


def _device_names(tree):
  """Names of devices, meshes and processes that a module mentions as jax's."""
  found = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      names = _dotted(node)
      if names and names[0] == "jax":
        found |= set(names) & _DEVICE_NAMES
    elif isinstance(node, ast.ImportFrom) and node.module.startswith("jax"):
      found |= {alias.name for alias in node.names} & _DEVICE_NAMES
      found |= set(node.module.split(".")) & _DEVICE_NAMES
  return found


def _dotted(node):
  names = []
  while isinstance(node, ast.Attribute):
    names.append(node.attr)
    node = node.value
  if not isinstance(node, ast.Name):
    return []
  return [node.id, *reversed(names)]


def test_the_rows_modules_are_there():
  assert set(_MODULES) >= _ROWS
  assert set(_MODULES) >= _MAY_SEE_DEVICES | set(_MAY_NAME)


@pytest.mark.parametrize("module", _MODULES)
def test_devices_and_meshes_are_seen_by_few(module):
  if module in _MAY_SEE_DEVICES:
    return
  allowed = _MAY_NAME.get(module, set())
  assert _device_names(_tree(module)) <= allowed


@pytest.mark.parametrize("module", sorted(_ROWS))
def test_rows_are_made_without_sight_of_the_mesh(module):
  assert not _uses_jax(_tree(module))
  reached = _reaches(module)
  assert not reached & (_MAY_SEE_DEVICES | {"checkpoint", "pipeline"})
  jaxed = {name for name in reached if _uses_jax(_tree(name))}
  assert not jaxed


def test_batches_are_made_without_sight_of_the_mesh():
  for module in ("batch", "attention", "fingerprint", "loss"):
    seen = _MAY_SEE_DEVICES | {"checkpoint", "pipeline"}
    assert not _reaches(module) & seen


def test_only_launch_and_the_pipeline_read_a_configuration():
  readers = {
    module
    for module in _MODULES
    if any(n.startswith("ml_collections") for n in _imports(_tree(module)))
  }
  # data_paths takes apart entries that a ConfigDict may hold; build_index is a
  # command that takes --config as launch/train.py does.
  allowed = {"pipeline", "online_pipeline", "data_paths", "tools/build_index"}
  assert {m for m in readers if not m.startswith("config")} <= allowed


def test_nothing_imports_the_surface_or_launch():
  for module in _MODULES:
    names = set(_imports(_tree(module)))
    assert not any(name.split(".")[0] == "launch" for name in names), module


def test_no_module_is_loaded_by_way_of_itself():
  # A function may look upwards when it is called: the iterator saves itself.
  for module in _MODULES:
    if module != _SURFACE:
      assert module not in _reaches(module, _at_top), module


def test_pybind11_stands_in_the_bindings_alone():
  sources = {
    path.name: path.read_text("utf-8")
    for suffix in ("*.cc", "*.h")
    for path in (_ROOT / "cc").rglob(suffix)
    if not path.relative_to(_ROOT / "cc").parts[0].startswith("build")
  }
  assert len(sources) > 10
  python = {n for n, t in sources.items() if "pybind11" in t or "Python.h" in t}
  bindings = {name for name in python if name.startswith("bindings")}
  assert "bindings.cc" in bindings
  # A header may help the bindings, if no kernel sees it.
  for header in python - bindings:
    users = {n for n, t in sources.items() if f'#include "{header}"' in t}
    assert header.endswith(".h") and users <= python, header


@pytest.mark.parametrize(
  "source, expected",
  [
    ("import jax\njax.process_index()", {"process_index"}),
    ("import jax\njax.sharding.Mesh", {"Mesh"}),
    ("from jax.sharding import NamedSharding", {"NamedSharding"}),
    ("from jax.experimental import multihost_utils", {"multihost_utils"}),
    ("import jax\njax.distributed.initialize()", {"distributed"}),
    ("import jax\nx: jax.Array", set()),
    ("self.devices = mesh.devices", set()),
  ],
)
def test_the_reading_sees_device_names(source, expected):
  assert _device_names(ast.parse(source)) == expected
