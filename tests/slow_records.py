"""Slow readers, written from the rules, to compare the fast ones with."""

import csv
import json

_BOM = b"\xef\xbb\xbf"


def slow_lines(data, is_blank=lambda line: not line or line.isspace()):
  """[(byte, line without its newline)] of the lines that are records."""
  offset = len(_BOM) if data.startswith(_BOM) else 0
  found = []
  for line in data[offset:].split(b"\n"):
    if not is_blank(line):
      found.append((offset, line))
    offset += len(line) + 1
  return found


def slow_text_lines(data):
  return slow_lines(data, lambda line: line in (b"", b"\r"))


def slow_csv(data):
  """[(byte, fields or None where they are not CSV)], the header first."""
  offset = len(_BOM) if data.startswith(_BOM) else 0
  body = data[offset:]
  taken = [offset]

  def lines():
    whole = body.split(b"\n")
    for number, line in enumerate(whole):
      if number == len(whole) - 1 and not line:
        return
      taken[0] += len(line) + 1
      yield line.decode("utf-8") + "\n"

  rows, found = csv.reader(lines(), strict=True), []
  while True:
    begin = taken[0]
    try:
      row = next(rows)
    except StopIteration:
      return found
    except csv.Error:
      row = None
    if row != []:
      found.append((begin, row))


def slow_array(text):
  """[(character, value)] of a JSON array's elements."""
  decoder = json.JSONDecoder()
  place = _after_space(text, 0) + 1
  found = []
  while True:
    place = _after_space(text, place)
    if text[place] == "]":
      return found
    value, end = decoder.raw_decode(text, place)
    found.append((place, value))
    place = _after_space(text, end)
    if text[place] == ",":
      place += 1


def _after_space(text, place):
  while text[place] in " \t\r\n":
    place += 1
  return place
