"""docs/parallelism.md against the code: pictures, numbers, programs, messages.

The Python of the page is run from top to bottom, in one program, as a reader
would; each picture is drawn again.
"""

import ast
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import jax
import numpy as np
import pytest
from absl import flags
from jax.experimental.pallas.ops.tpu import splash_attention
from jax.experimental.pallas.ops.tpu.splash_attention import (
  splash_attention_mask as masks,
)
from ml_collections import config_flags

import hpgrain
from hpgrain import shard
from hpgrain.config import base_config, check
from hpgrain.config_schema import BY_NAME
from hpgrain.context_layout import DOCUMENT_ZIGZAG, LAYOUTS, ContextLayout

_ROOT = Path(__file__).parents[1]
_DOCS = _ROOT / "docs"
sys.path.append(str(_DOCS))

import draw_parallelism as drawing  # noqa: E402
import draw_replica_read  # noqa: E402
import parallelism_costs as costs  # noqa: E402

_TEXT = (_DOCS / "parallelism.md").read_text("utf-8")
_FIXED = [name for name in LAYOUTS if name != DOCUMENT_ZIGZAG]
_SVG = "{http://www.w3.org/2000/svg}"


# Pictures.


@pytest.fixture(scope="module")
def drawn():
  return drawing.pictures()


def test_pictures_are_as_they_are_drawn(drawn):
  files = {path.name for path in (_DOCS / "figures").iterdir()}
  assert files == set(drawn)
  for name, picture in drawn.items():
    committed = (_DOCS / "figures" / name).read_bytes()
    assert committed == picture.encode(), (
      f"{name}: run `python docs/draw_parallelism.py`"
    )


def test_the_page_shows_every_picture(drawn):
  shown = re.findall(r"!\[[^\]]+\]\(figures/([\w.]+)\)", _TEXT)
  assert sorted(shown) == sorted(drawn)


def test_pictures_are_sound_and_small(drawn):
  for picture in drawn.values():
    root = ET.fromstring(picture)
    assert root.tag == f"{_SVG}svg"
    assert root.find(f"{_SVG}title").text
    width, height = (int(root.get(name)) for name in ("width", "height"))
    assert len(picture) < 40_000
    for shape in root.iter(f"{_SVG}rect"):
      x, y, w, h = (float(shape.get(k)) for k in ("x", "y", "width", "height"))
      assert 0 <= x and x + w <= width and 0 <= y and y + h <= height
    for text in root.iter(f"{_SVG}text"):
      assert text.text
      assert 0 <= float(text.get("x")) <= width
      assert 0 <= float(text.get("y")) <= height - 8


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("name", _FIXED)
def test_what_is_drawn_is_what_devices_hold(name, sequence_parallel):
  config = _config()
  config.training.global_batch_size = drawing.NUM_ROWS
  config.get_batch.context_parallel_layout = name
  config.mesh.sequence_parallel = sequence_parallel
  mesh = jax.make_mesh((2, 2, 2), ("data", "cp", "tp"))
  loader = hpgrain.build(config, mesh).train
  positions = next(iter(loader))["position_ids"]
  found = drawing.held(name, sequence_parallel=sequence_parallel)
  held = {
    part.device: np.asarray(part.data) for part in positions.addressable_shards
  }
  assert len(found) == len(held) == 8
  for device, drawn in zip(mesh.devices.flat, found):
    assert held[device].tolist() == drawn.positions.tolist()


def test_documents_are_drawn_with_all_positions_once_in_a_data_share():
  found = drawing.held(DOCUMENT_ZIGZAG)
  for share in range(2):
    ranks = [
      device.positions
      for device in found
      if device.place["data"] == share and device.place["tp"] == 0
    ]
    whole = np.sort(np.concatenate(ranks, axis=1), axis=1)
    assert (whole == np.arange(16)).all()
  # Row 0 is documents of 7 and 4: rooms of 8, 4 and, of padding, 4.
  assert found[0].positions[0].tolist() == [0, 1, 6, 7, 8, 11, 12, 15]


def test_processes_that_split_rows_make_each_once_and_want_the_batch():
  made = [
    (part.rows, part.window)
    for layout, _ in draw_replica_read.shares()
    for part in layout.shards
  ]
  assert made == [((row, row + 1), (0, 16)) for row in range(4)]
  wanted = [
    [(part.rows, part.window) for part in layout.shards]
    for _, layout in draw_replica_read.shares()
  ]
  assert wanted == [
    [((0, 2), (0, 8))],
    [((0, 2), (8, 16))],
    [((2, 4), (0, 8))],
    [((2, 4), (8, 16))],
  ]


# Numbers.


def _table(heading):
  """Returns the rows of the first table that follows some words."""
  after = _TEXT[_TEXT.index(heading) :]
  lines = after[after.index("\n|") + 1 :].splitlines()
  rows = []
  for line in lines:
    if not line.startswith("|"):
      break
    rows.append([cell.strip(" `") for cell in line.strip("|").split("|")])
  return {row[0]: row[1:] for row in rows[2:]} | {rows[0][0]: rows[0][1:]}


def test_windows_that_it_shows_are_read():
  table = _table("each a process of its own:")
  for name in _FIXED:
    windows, most = table[name]
    ranks = [
      [tuple(map(int, window.split("-"))) for window in rank.split(", ")]
      for rank in windows.split("; ")
    ]
    assert ranks == costs.windows_read(name)
    assert {sum(b - a for a, b in rank) for rank in ranks} == {int(most)}


def test_pairs_of_ring_attention():
  table = _table("**Ring attention**")
  sums = {}
  for name in _FIXED:
    *steps, total = map(int, table[name])
    assert steps == costs.ring_pairs(name).max(axis=1).tolist()
    assert total == sum(steps)
    # No pair is lost on the way.
    seen = costs.seen_pairs(name)
    assert (costs.ring_pairs(name).sum(axis=0) == seen).all()
    sums[name] = total
  for name in ("zigzag", "striped"):
    assert f"{sums[name] / sums['contiguous']:.2f}" == "0.57"
  assert "both take 0.57 times" in _TEXT


def test_the_last_of_n_contiguous_ranks():
  seen = costs.seen_pairs("contiguous")
  assert seen[-1] / seen.mean() == pytest.approx(2 - 1 / 4, abs=1e-3)
  assert costs.seen_pairs("zigzag").std() == 0


def test_blocks_are_those_of_splash_attention():
  size, block = costs.NUM_POSITIONS, costs.BLOCK
  blocks = splash_attention.BlockSizes(
    block_q=block, block_kv=block, block_kv_compute=block
  )
  table = _table("**Gathered keys")
  for name in _FIXED:
    *counts, most = map(int, table[name])
    assert counts == costs.splash_blocks(name).tolist()
    assert most == max(counts)
    # By the kernel's own account of what its blocks have to do.
    order = ContextLayout(name, costs.NUM_RANKS).order(size)
    mask = masks.NumpyMask(order[:, None] >= np.arange(size)[None])
    kernel = splash_attention.make_splash_mha(
      mask=masks.MultiHeadMask([mask]),
      block_sizes=blocks,
      head_shards=1,
      q_seq_shards=costs.NUM_RANKS,
    )
    todo = np.asarray(kernel.fwd_mask_info.block_mask)
    ranks = todo.reshape(costs.NUM_RANKS, -1)
    assert (ranks != 0).sum(axis=1).tolist() == counts


def test_costs_of_documents():
  table = _table("**Kernels that skip other documents**")
  for name in LAYOUTS:
    seen = costs.seen_pairs(name, lengths=costs.PACKED)
    assert table[name] == [f"{n:.2f}" for n in seen / seen.mean()]


def test_padding_of_rooms():
  table = _table("by `best_fit`:")
  multiples = [int(m) for m in table["segment_multiple"]]
  for multiple, largest, said in zip(
    multiples, table["largest cp"], table["padding"]
  ):
    assert largest == ("-" if multiple == 1 else str(multiple // 2))
    assert said == f"{costs.padding_share(multiple):.2%}"


def test_it_prints_its_numbers(capsys):
  costs.main()
  said = capsys.readouterr().out
  assert re.search(r"zigzag +32896 +32768 +32768 +32768 +131200", said)
  assert re.search(r"8 +0\.93%", said)


# Programs.


def _config():
  config = base_config()
  config.dataset.data_config.mock_data = True
  config.dataset.data_config.vocab_size = 100
  config.dataset.data_config.seq_length = 16
  config.training.global_batch_size = 8
  return config


def test_its_python_runs(capsys):
  blocks = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)
  assert len(blocks) == 4
  seen = {}
  for code in blocks:
    exec(compile(code, "<docs/parallelism.md>", "exec"), seen)
    said = capsys.readouterr().out
    assert said == "".join(f"{line[2:]}\n" for line in _comments(code))
  assert seen["same_order"].shape == (4, 16)
  assert (np.asarray(seen["row"]) == np.arange(16)).all()
  # Rows go on, and are not those of the first batch.
  assert seen["rows"][0].shape == (4, 16)
  first = next(iter(seen["plain"]))["input_ids"]
  assert (np.asarray(seen["rows"][0]) != np.asarray(first)).any()


def _comments(code):
  """Returns what the page says that a program prints."""
  return [line for line in code.splitlines() if line.startswith("# ")]


def test_its_commands_are_legal(monkeypatch):
  monkeypatch.chdir(_ROOT)
  commands = re.findall(r"```sh\n(.*?)```", _TEXT, re.DOTALL)
  found = []
  for command in commands:
    python, *argv = shlex.split(command.replace("\\\n", " "))
    assert (python, argv[0]) == ("python", "launch/train.py")
    values = flags.FlagValues()
    holder = config_flags.DEFINE_config_file(
      "config", flag_values=values, lock_config=True, sys_argv=argv
    )
    values(argv, known_only=True)
    found.append(check(holder.value))
  cut, packed, slices, two = found
  for config, layout in (cut, "zigzag"), (packed, DOCUMENT_ZIGZAG):
    assert config.get_batch.context_parallel_layout == layout
    assert config.model.attention == "ring"
    assert (config.mesh.data, config.mesh.cp, config.mesh.tp) == (2, 2, 2)
  assert slices.mesh.data_axes == ("dcn", "fsdp")
  assert slices.mesh.sizes == (2, 1, 2, 2)
  assert two.dataloader.replica_read == "split"


# Messages.


def _build(axes, shape, **keys):
  config = _config()
  for name, value in keys.items():
    *sections, last = name.split("__")
    section = config
    for part in sections:
      section = section[part]
    section[last] = value
  return hpgrain.build(config, jax.make_mesh(shape, axes))


def _check(**keys):
  config = base_config()
  config.dataset.data_path = "/data/books_text_document"
  config.dataset.data_config.seq_length = 64
  config.training.global_batch_size = 8
  config.dataloader.type = "dynamic"
  config.get_batch.context_parallel_layout = DOCUMENT_ZIGZAG
  for name, value in keys.items():
    section, key = name.split("__")
    config[section][key] = value
  return check(config)


def _build_balanced():
  """Two shares of a batch of packed documents, over four data devices."""
  config = _check(
    get_batch__context_parallel_layout="zigzag", dataloader__balance_shares=2
  )
  hpgrain.build(config, jax.make_mesh((4, 2), _CP))


_CP = ("data", "cp")
_MISTAKES = {
  "12 rows": lambda: _build(_CP, (8, 1), training__global_batch_size=12),
  "`seq_length=20`": lambda: _build(
    _CP,
    (2, 4),
    dataset__data_config__seq_length=20,
    get_batch__context_parallel_layout="zigzag",
  ),
  "data axes of": lambda: _build(("fsdp", "cp"), (4, 2)),
  "`mesh.cp=2`": lambda: _build(("data",), (8,), mesh__cp=2),
  "`sequence_parallel`": lambda: _build(
    _CP, (4, 2), mesh__sequence_parallel=True
  ),
  "labels that": lambda: _build(
    _CP, (4, 2), get_batch__labels_are_shifted=False
  ),
  "`document_zigzag` of": lambda: _check(dataloader__type="fixed"),
  "`document_zigzag`, `segment": lambda: _check(
    dataloader__segment_multiple=4, mesh__cp=4
  ),
  "one segment": lambda: _check(
    dataloader__segment_multiple=4, get_batch__reset_attention_mask=False
  ),
  "`balance_shares=2`": _build_balanced,
  "sizes that": lambda: shard.make_mesh(_CP, {"data": 3, "cp": 2}),
}


def _said(begin):
  table = _table("What is said where a number is wrong:")
  (message,) = [
    row[0] for done, row in table.items() if done.startswith(begin.strip("`"))
  ]
  return message


@pytest.mark.parametrize("begin", _MISTAKES)
def test_errors_say_what_the_page_says(begin):
  with pytest.raises(ValueError, match=re.escape(_said(begin))):
    _MISTAKES[begin]()


def test_every_error_of_the_table_is_provoked():
  table = _table("What is said where a number is wrong:")
  assert len(table) == len(_MISTAKES) + len(["done"])


# The page itself.


def _without_code():
  return re.sub(r"```.*?```", "", _TEXT, flags=re.DOTALL)


def test_its_keys_are_keys():
  sections = "training|dataset|dataloader|get_batch|mesh"
  named = set(re.findall(rf"`((?:{sections})\.[\w.]+)", _without_code()))
  assert len(named) > 6
  assert named <= BY_NAME.keys()


def test_links_and_headings_are_there():
  links = re.findall(r"\]\((?!http)([^)#]+)", _TEXT)
  assert [link for link in links if not (_DOCS / link).exists()] == []
  anchors = {
    re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
    for heading in re.findall(r"^#+ (.*)$", _TEXT, re.M)
  }
  assert set(re.findall(r"\]\(#([\w-]+)\)", _TEXT)) <= anchors


def test_scripts_that_it_names_are_there_and_say_how_they_are_run():
  for script in re.findall(r"`python (\S+\.py)`", _TEXT):
    tree = ast.parse((_ROOT / script).read_text("utf-8"))
    assert f"python {script}" in ast.get_docstring(tree)
