"""Every format is read from an object store as from a disk."""

import gzip
import json

import pytest
from reading import texts

from hpgrain.object_store import put_bytes
from hpgrain.tools.inputs import find_inputs, units

TEXTS = [f"text {i} é" for i in range(40)]
LINES = "".join(
  json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS
).encode()


def parquet(path):
  pa = pytest.importorskip("pyarrow")
  from pyarrow import parquet

  parquet.write_table(pa.table({"text": TEXTS}), path, row_group_size=15)


def arrow(path):
  pa = pytest.importorskip("pyarrow")
  table = pa.table({"text": TEXTS})
  with pa.OSFile(str(path), "wb") as file:
    with pa.ipc.new_file(file, table.schema) as writer:
      writer.write_table(table, max_chunksize=15)


def zstd(path):
  zstandard = pytest.importorskip("zstandard")
  path.write_bytes(zstandard.compress(LINES))


WRITERS = {
  "x.jsonl": lambda path: path.write_bytes(LINES),
  "x.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES)),
  "x.jsonl.zst": zstd,
  "x.json": lambda path: path.write_text(
    json.dumps([{"text": text} for text in TEXTS])
  ),
  "x.txt": lambda path: path.write_text("\n".join(TEXTS)),
  "x.csv": lambda path: path.write_text("\n".join(["text", *TEXTS])),
  "x.parquet": parquet,
  "x.arrow": arrow,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_format_on_a_store(bucket, tmp_path, name):
  path = tmp_path / name
  WRITERS[name](path)
  url = f"{bucket}/{name}"
  put_bytes(path.read_bytes(), url)
  cut = [units(find_inputs(place), unit_bytes=300) for place in (path, url)]
  assert [(u.start, u.stop) for u in cut[0]] == [
    (u.start, u.stop) for u in cut[1]
  ]
  assert texts(url, unit_bytes=300) == texts(path, unit_bytes=300) == TEXTS


def test_array_records_are_to_be_copied_first(bucket):
  put_bytes(b"x", f"{bucket}/x.array_record")
  with pytest.raises(ValueError, match="Copy it to a disk first"):
    units(find_inputs(f"{bucket}/x.array_record"))
