"""Parquet and Arrow: rows in order, in units of groups or batches."""

import os
import subprocess
import sys

import pytest
from reading import placed, texts, write

from hpgrain.tools.inputs import BadRecordError, find_inputs, read_unit, units

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TEXTS = [f"text {i} é" for i in range(10)]


def save(path, table, rows):
  """Writes a table in groups or batches of `rows` rows."""
  if path.suffix == ".parquet":
    parquet.write_table(table, path, row_group_size=rows)
  else:
    new = pa.ipc.new_file if path.stem == "file" else pa.ipc.new_stream
    with new(path, table.schema) as writer:
      writer.write_table(table, max_chunksize=rows)
  return path


@pytest.fixture(params=["x.parquet", "file.arrow", "stream.arrow"])
def path(request, tmp_path):
  return tmp_path / request.param


@pytest.mark.parametrize("unit_bytes", [1, 300, 1 << 23])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_rows_come_in_order_from_any_units(path, rows, unit_bytes):
  table = pa.table({"id": range(10), "text": TEXTS, "b": TEXTS[::-1]})
  save(path, table, rows)
  assert texts(path, unit_bytes=unit_bytes) == TEXTS
  found = texts(path, ("b", "text"), unit_bytes=unit_bytes)
  assert found == list(zip(TEXTS[::-1], TEXTS))


def test_units_are_runs_of_groups_and_know_their_first_record(path):
  save(path, pa.table({"text": TEXTS}), 3)
  cut = units(find_inputs(path), unit_bytes=1)
  assert [(unit.start, unit.stop) for unit in cut] == [
    (0, 1),
    (1, 2),
    (2, 3),
    (3, 4),
  ]
  assert [unit.first_record for unit in cut] == [0, 3, 6, 9]
  assert sum(unit.num_bytes for unit in cut) == path.stat().st_size
  found = [r.texts[0] for r in read_unit(cut[1], ["text"])]
  assert found == TEXTS[3:6]
  (whole,) = units(find_inputs(path))
  assert (whole.start, whole.stop) == (0, 4)


@pytest.mark.parametrize(
  "kind",
  [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
  ],
  ids=str,
)
def test_strings_of_every_type_are_read(path, kind):
  save(path, pa.table({"text": pa.array(["a", "é", ""]).cast(kind)}), 2)
  assert texts(path) == ["a", "é", ""]


def test_null_and_broken_text_are_bad_records(path):
  held = pa.array([b"a", None, b"sesame\xff", b"z"], pa.binary())
  save(path, pa.table({"text": held.view(pa.string())}), 2)
  found, bad = placed(path, unit_bytes=1)
  assert found == [
    ("a", 0, None),
    (None, 1, None),
    (None, 0, None),
    ("z", 1, None),
  ]
  assert bad == [
    "holds null under 'text', not a string.",
    "is not UTF-8: byte 0xff at 6 bytes into the record (invalid start byte)."
    " Convert the file to UTF-8.",
  ]
  with pytest.raises(BadRecordError) as caught:
    placed(path, unit_bytes=1)
    (_, unit) = units(find_inputs(path), unit_bytes=1)
    list(read_unit(unit, ["text"]))
  assert str(caught.value).startswith(f"{path}: record 3 is not UTF-8")


def test_column_must_be_there_and_of_strings(path):
  save(path, pa.table({"body": ["a"], "n": [1]}), 2)
  with pytest.raises(ValueError, match=r"no column 'text'.*'body', 'n'"):
    texts(path)
  with pytest.raises(ValueError, match="holds int64 under 'n', not strings"):
    texts(path, ("n",))


def test_no_rows_no_records(path):
  save(path, pa.table({"text": pa.array([], pa.string())}), 2)
  assert texts(path) == []


@pytest.mark.parametrize("keep", [0, 5, 100, -4])
def test_file_that_is_cut_off_is_refused(path, keep):
  save(path, pa.table({"text": TEXTS}), 3)
  content = path.read_bytes()
  write(path, content[:keep])
  with pytest.raises(ValueError, match=f"{path} cannot be read"):
    if texts(path) == TEXTS:
      pytest.skip("a stream without its end mark is whole")


# Reads a file within a limit of what a process may hold beyond its modules,
# mapped files aside.
_READ = """
import resource, sys
import numpy, pyarrow.compute, pyarrow.parquet
from hpgrain.tools.inputs import find_inputs, read_unit, units
status = dict(line.split(":") for line in open("/proc/self/status"))
limit = 1024 * int(status["VmData"].split()[0]) + (150 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
for unit in units(find_inputs(sys.argv[1])):
  for record in read_unit(unit, ["text"]):
    print(record.index, len(record.texts[0]), record.texts[0][:3])
"""


@pytest.mark.parametrize("kind", ["shared", "different", "dictionary"])
def test_long_texts_are_held_a_few_at_a_time(path, kind):
  count, long = 200, "a" * 1_000_000
  numbers = [i % 3 if kind != "different" else i for i in range(count)]
  starts = [f"{i:03}" for i in numbers]
  if kind == "dictionary":
    held = pa.DictionaryArray.from_arrays(
      pa.array(numbers, pa.int32()), [start + long for start in starts[:3]]
    )
  else:
    held = pa.array([start + long for start in starts])
  table = pa.table({"text": held})
  if path.suffix == ".parquet":
    # Pages of one row: a page is read in one piece.
    parquet.write_table(table, path, compression="zstd", write_batch_size=1)
    assert path.stat().st_size < 1 << 20
  else:
    save(path, table, count)
  del table, held
  done = subprocess.run(
    [sys.executable, "-c", _READ, str(path)],
    capture_output=True,
    text=True,
    check=False,
    # Each thread reserves a stack of 8 MB, which counts.
    env={
      **os.environ,
      "OPENBLAS_NUM_THREADS": "1",
      "ARROW_DEFAULT_MEMORY_POOL": "system",
    },
  )
  assert done.returncode == 0, done.stderr
  found = [line.split() for line in done.stdout.splitlines()]
  assert found == [[str(i), "1000003", start] for i, start in enumerate(starts)]
