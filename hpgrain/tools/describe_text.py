"""What `describe` and `verify` found in, text for a person out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpgrain.tools.verification import Verification

_WIDTH = 18
_BAR = 40
_INPUTS = 3


def description_text(found: Mapping[str, Any]) -> str:
  """All that `describe` tells."""
  lines = [f"{found['name']}, {_KINDS[found['format']]}"]
  lines += _rows(_counts(found))
  lines += _histogram(found)
  lines += _eods(found["eod"])
  lines += _samples(found["samples"])
  lines += _manifest(found["manifest"])
  lines += [f"note: {note}" for note in found["notes"]]
  return "\n".join(lines)


def verification_text(name: str, found: Verification) -> str:
  """The checks, then the problems."""
  width = max((len(check.name) for check in found.checks), default=0)
  lines = [f"{name}:"]
  for check in found.checks:
    why = f"  {check.why}" if check.why else ""
    lines.append(f"  {check.name:<{width}}  {check.state}{why}")
  if found.good:
    lines.append("Nothing wrong was found.")
    return "\n".join(lines)
  lines.append(f"{_many(found.num_problems, 'problem')}:")
  lines += [f"  {problem}" for problem in found.problems]
  if found.num_problems > len(found.problems):
    left = found.num_problems - len(found.problems)
    lines.append(f"  and {left:,} more")
  return "\n".join(lines)


def escaped(text: str) -> str:
  """A text in which nothing moves the cursor or hides: one line of it."""
  return "".join(
    character
    if character.isprintable()
    else character.encode("unicode_escape").decode()
    for character in text.replace("\\", "\\\\")
  )


_KINDS = {"indexed": "a pair of .bin and .idx", "arrayrecord": "an ArrayRecord"}


def _counts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
  empty = found["empty_documents"]
  yield (
    "documents",
    _number(found["documents"])
    + (f", {empty:,} of them empty" if empty is not None else ""),
  )
  yield "sequences", _number(found["sequences"])
  yield (
    "tokens",
    f"{_number(found['tokens'])} as {found['dtype'] or 'no known dtype'}",
  )
  if found["modes"]:
    yield "modes", "one for each sequence"
  for kind, file in found["files"].items():
    yield f".{kind}", f"{file['bytes']:,} bytes"


def _histogram(found: Mapping[str, Any]) -> list[str]:
  lengths = found["document_tokens"]
  if lengths is None or not lengths["histogram"]:
    return []
  lines = [
    f"tokens a document: {lengths['least']:,} to {lengths['most']:,},"
    f" {lengths['mean']:,.1f} on average"
  ]
  most = max(row["documents"] for row in lengths["histogram"])
  for row in lengths["histogram"]:
    size = f"{row['from']:,}"
    if row["to"] > row["from"]:
      size += f" - {row['to']:,}"
    # What is there is seen, however little it is.
    bar = "#" * -(-row["documents"] * _BAR // most)
    lines.append(f"  {size:>25} {row['documents']:>14,} {bar}".rstrip())
  return lines


def _eods(eod: Mapping[str, Any] | None) -> list[str]:
  if eod is None:
    return []
  others = eod["documents_ending_otherwise"]
  otherwise = f"{others:,} documents with tokens"
  if others:
    otherwise += _first([f"{d:,}" for d in eod["first_ending_otherwise"]])
  inside = f"{eod['inside_documents']:,}"
  if eod["inside_documents"]:
    inside += _first(
      [
        f"document {p['document']:,} token {p['token']:,}"
        for p in eod["first_inside"]
      ]
    )
  return [
    f"EOD, id {eod['id']}: {eod['tokens']:,} of them",
    *_rows(
      [
        ("ends", f"{eod['documents_ending_with_it']:,} documents"),
        ("does not end", otherwise),
        ("inside documents", inside),
      ]
    ),
  ]


def _first(places: Sequence[str]) -> str:
  return f", the first: {', '.join(places)}"


def _samples(samples: list[Mapping[str, Any]]) -> list[str]:
  lines = []
  for sample in samples:
    eods = ""
    if sample["eods"]:
      places = ", ".join(f"{place:,}" for place in sample["first_eods"])
      more = ", ..." if sample["eods"] > len(sample["first_eods"]) else ""
      eods = f", EOD at {places}{more}"
    lines.append(
      f"document {sample['document']:,}: {_many(sample['tokens'], 'token')},"
      f" {_many(sample['sequences'], 'sequence')}{eods}"
    )
    more = " ..." if sample["tokens"] > len(sample["ids"]) else ""
    lines.append(f"  ids   {' '.join(map(str, sample['ids']))}{more}".rstrip())
    if sample["text"] is not None:
      more = " ..." if sample["text_is_cut"] else ""
      lines.append(f"  text  {escaped(sample['text'])}{more}".rstrip())
  return lines


def _manifest(manifest: Mapping[str, Any] | None) -> list[str]:
  if manifest is None:
    return ["manifest: there is none"]
  rows = []
  for field, value in manifest.items():
    if field == "tokenizer":
      rows += [(f"tokenizer {key}", _value(v)) for key, v in value.items()]
    elif field == "inputs":
      size = sum(file["bytes"] for file in value)
      rows.append((field, f"{_many(len(value), 'file')} of {size:,} bytes"))
      rows += [
        ("", f"{escaped(file['path'])}, {file['bytes']:,} bytes")
        for file in value[:_INPUTS]
      ]
      if len(value) > _INPUTS:
        rows.append(("", "..."))
    elif field == "bad":
      rows += [
        (
          "bad record",
          f"{bad['record']} of {escaped(bad['path'])} {escaped(bad['reason'])}",
        )
        for bad in value[:_INPUTS]
      ]
    elif isinstance(value, Mapping):
      rows += [(f"{field} {key}", _value(v)) for key, v in value.items()]
    else:
      rows.append((field, _value(value)))
  rows = [(name, value) for name, value in rows if value != "none"]
  return ["manifest:", *_rows(rows, width=27)]


def _value(value: Any) -> str:
  if value is None:
    return "none"
  if isinstance(value, bool):
    return "yes" if value else "no"
  if isinstance(value, int):
    return f"{value:,}"
  return escaped(str(value))


def _rows(rows: Iterable[tuple[str, str]], *, width: int = _WIDTH) -> list[str]:
  return [f"  {name:<{width}}{value}" for name, value in rows]


def _many(count: int, noun: str) -> str:
  return f"{count:,} {noun}{'s' * (count != 1)}"


def _number(value: int | None) -> str:
  return "not counted" if value is None else f"{value:,}"
