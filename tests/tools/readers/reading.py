"""What the readers' tests share: files in, plain values out."""

from hpgrain.tools.inputs import find_inputs, read_unit, units


def texts(path, keys=("text",), *, unit_bytes=1 << 23):
  """The texts of a path's records, of one key as a flat list."""
  found = [
    record.texts
    for unit in units(find_inputs(path), unit_bytes=unit_bytes)
    for record in read_unit(unit, keys)
  ]
  return [text for (text,) in found] if len(keys) == 1 else found


def placed(path, keys=("text",), *, unit_bytes=1 << 23):
  """(text or None, index, offset) of a path's records, and the reasons."""
  found, bad = [], []

  def on_bad(record):
    found.append((None, record.index, record.offset))
    bad.append(record.reason)

  for unit in units(find_inputs(path), unit_bytes=unit_bytes):
    for record in read_unit(unit, keys, on_bad):
      found.append((*record.texts, record.index, record.offset))
  return found, bad


def write(path, content):
  path.write_bytes(content if isinstance(content, bytes) else content.encode())
  return path
