import dataclasses
import json

import pytest

from hpgrain import fingerprint
from hpgrain.fields import FieldOptions

_IDENTITY = {
  "kind": "gpt",
  "sources": [{"name": "a", "content": "00ff"}],
  "order": "stable",
  "shuffle": True,
  "seed": 3,
  "seq_length": 8,
  "add_extra_token": True,
  "split": "98,1,1",
  "split_index": 0,
  "drop_last": True,
  "weights": [1, 2],
  "simple_blend": "no",
}


def _differing(identity, options):
  """The parts whose digests are not those of the plain pipeline."""
  plain = fingerprint.digests(fingerprint.parts(_IDENTITY, FieldOptions()))
  other = fingerprint.digests(fingerprint.parts(identity, options))
  assert plain.keys() == other.keys()
  return [name for name in plain if plain[name] != other[name]]


@pytest.mark.parametrize(
  "key, value, part",
  [
    ("sources", [{"name": "b", "content": "00ff"}], "data"),
    ("sources", [{"name": "a", "content": "00fe"}], "data"),
    ("kind", "precut", "data"),
    ("eod_id", 4, "data"),
    ("weights", [2, 1], "weights"),
    ("weights", None, "weights"),
    ("simple_blend", "inter", "weights"),
    ("order", "other", "order"),
    ("shuffle", False, "order"),
    ("drop_last", False, "order"),
    ("seed", 4, "seed"),
    ("seq_length", 9, "seq_length"),
    ("add_extra_token", False, "seq_length"),
    ("split", "1,1,1", "split"),
    ("split_index", 1, "split"),
  ],
)
def test_what_decides_rows_changes_its_part_alone(key, value, part):
  assert _differing(_IDENTITY | {key: value}, FieldOptions()) == [part]


@pytest.mark.parametrize(
  "options, part",
  [
    ({"labels_are_shifted": False}, ["labels"]),
    ({"mask_boundary_labels": False}, ["labels"]),
    ({"eod_mask_loss": True, "eod_id": 4}, ["labels"]),
    ({"reset_position_ids": True}, ["masks"]),
    ({"reset_attention_mask": False}, ["masks"]),
    # An id that no option uses decides nothing.
    ({"eod_id": 4}, []),
    # One more field changes no row.
    ({"source_ids": True}, []),
  ],
)
def test_every_field_option_is_in_a_part(options, part):
  assert _differing(_IDENTITY, FieldOptions(**options)) == part


def test_no_field_option_is_left_out():
  names = {field.name for field in dataclasses.fields(FieldOptions)}
  names -= {"source_ids"}
  grouped = fingerprint.parts(
    _IDENTITY, FieldOptions(eod_mask_loss=True, eod_id=1)
  )
  assert names <= grouped["labels"].keys() | grouped["masks"].keys()
  assert sum(len(part) for part in grouped.values()) == len(_IDENTITY) + len(
    names
  )


def test_digests_are_short_and_do_not_change():
  digests = fingerprint.digests(fingerprint.parts(_IDENTITY, FieldOptions()))
  assert list(digests) == [
    "data",
    "weights",
    "order",
    "seed",
    "seq_length",
    "split",
    "labels",
    "masks",
  ]
  # Written out: a saved state must be readable by later versions.
  assert digests["seed"] == "f3a44eae"
  assert digests["order"] == "cd116e20"
  assert len(json.dumps(digests)) < 200


def test_equal_fingerprints_pass():
  grouped = fingerprint.parts(_IDENTITY, FieldOptions())
  saved = json.loads(json.dumps(fingerprint.digests(grouped)))
  fingerprint.check(saved, grouped)
  fingerprint.check(saved, grouped, json.loads(json.dumps(grouped)))


def test_a_mismatch_names_the_parts_and_their_values():
  saved_parts = fingerprint.parts(_IDENTITY, FieldOptions())
  saved = fingerprint.digests(saved_parts)
  current = fingerprint.parts(
    _IDENTITY | {"seed": 4, "shuffle": False},
    FieldOptions(reset_position_ids=True),
  )
  with pytest.raises(ValueError, match="makes other rows") as error:
    fingerprint.check(saved, current)
  lines = str(error.value).splitlines()
  assert lines[1:4] == [
    "  masks (position or attention resets)",
    "  order (the order of rows)",
    "  seed (training.seed)",
  ]
  assert "Restore with the configuration" in lines[4]
  with pytest.raises(ValueError, match="saved 3, now 4") as error:
    fingerprint.check(saved, current, saved_parts)
  assert str(error.value).splitlines()[1:7] == [
    "  masks (position or attention resets)",
    "    reset_position_ids: saved false, now true",
    "  order (the order of rows)",
    "    shuffle: saved true, now false",
    "  seed (training.seed)",
    "    seed: saved 3, now 4",
  ]


def test_a_long_value_is_cut_short_and_many_are_counted():
  many = [{"name": f"source {i}", "content": "0" * 300} for i in range(100)]
  saved_parts = fingerprint.parts(_IDENTITY, FieldOptions())
  current = fingerprint.parts(_IDENTITY | {"sources": many}, FieldOptions())
  saved = fingerprint.digests(saved_parts)
  with pytest.raises(
    ValueError, match=r"sources\[0\]\.\w+: saved .*, now .*0\.\.\.\n"
  ) as error:
    fingerprint.check(saved, current, saved_parts)
  told = [line for line in str(error.value).split("\n") if ": saved" in line]
  assert len(told) == 8
  assert "... and 192 more" in str(error.value)
  assert len(str(error.value)) < 3000


def test_what_differs_inside_a_source_is_told_by_itself():
  def of(size):
    source = {"name": "a", "transform": {"max_seq_len": size, "version": 1}}
    return fingerprint.parts(_IDENTITY | {"sources": [source]}, FieldOptions())

  with pytest.raises(
    ValueError,
    match=r"\n    sources\[0\]\.transform\.max_seq_len: saved 8, now 9\n",
  ):
    fingerprint.check(fingerprint.digests(of(8)), of(9), of(8))


def test_a_part_of_another_version_is_named():
  grouped = fingerprint.parts(_IDENTITY, FieldOptions())
  saved = fingerprint.digests(grouped) | {"future": "00000000"}
  with pytest.raises(ValueError, match=r"future \(unknown to this version\)"):
    fingerprint.check(saved, grouped)
  saved = fingerprint.digests(grouped)
  del saved["masks"]
  with pytest.raises(ValueError, match=r"  masks \(position"):
    fingerprint.check(saved, grouped)


def test_what_is_no_fingerprint_is_refused():
  grouped = fingerprint.parts(_IDENTITY, FieldOptions())
  with pytest.raises(ValueError, match="mapping of parts, got 'abc'"):
    fingerprint.check("abc", grouped)


_PACKED = {**_IDENTITY, "packing": {"packer": "best_fit", "epochs": None}}


def test_only_packed_rows_have_a_part_for_it():
  plain = fingerprint.parts(_IDENTITY, FieldOptions())
  assert "packing" not in plain
  balance = {"balance_shares": 2, "balance_rows": 8}
  assert fingerprint.parts(_PACKED, FieldOptions()) == plain | {
    "packing": {"packer": "best_fit", "epochs": None}
  }
  balanced = fingerprint.parts(_PACKED | {"balance": balance}, FieldOptions())
  assert balanced["packing"] == _PACKED["packing"] | balance


def test_a_mismatch_of_packing_names_the_key():
  saved = fingerprint.parts(_PACKED, FieldOptions())
  now = fingerprint.parts(
    _PACKED | {"packing": {"packer": "concat", "epochs": None}}, FieldOptions()
  )
  match = r'packing \(how .*\)\n    packer: saved "best_fit", now "concat"\n'
  with pytest.raises(ValueError, match=match) as raised:
    fingerprint.check(fingerprint.digests(saved), now, saved)
  assert "epochs:" not in str(raised.value)
  with pytest.raises(ValueError, match="packing"):
    fingerprint.check(
      fingerprint.digests(fingerprint.parts(_IDENTITY, FieldOptions())), now
    )
