import pytest

from hpgrain.transforms.text_fields import (
  template_fields,
  text_keys_of,
  text_reader,
)


def test_the_first_field_that_is_there_is_taken():
  read = text_reader(["body", "text"], None)
  assert read({"text": "a"}) == "a"
  assert read({"text": "a", "body": "b"}) == "b"
  assert read({"text": "a", "body": None}) == "a"
  assert read({"text": "a", "body": ""}) == ""
  with pytest.raises(
    ValueError, match="none of the fields 'body', 'text', only 'title'"
  ):
    read({"title": "a"})
  with pytest.raises(ValueError, match="'body' must be a string, got list"):
    read({"text": "a", "body": ["b"]})


def test_a_template_puts_fields_in():
  read = text_reader(None, "{{q}} {question}\n{answer}{answer}")
  assert read({"question": "{answer}", "answer": "4"}) == "{q} {answer}\n44"
  with pytest.raises(ValueError, match="it has no field 'answer'"):
    read({"question": "x"})
  assert template_fields("{a}{b}{a}") == ("a", "b")


@pytest.mark.parametrize(
  "template, message",
  [
    ("{a.b}", "may only name fields.* got 'a.b'"),
    ("{a[0]}", "may only name fields"),
    ("{a!r}", "may only name fields"),
    ("{a:>3}", "may only name fields"),
    ("{}", "may only name fields"),
    ("{0}", "may only name fields"),
    ("text", "names no field"),
    ("{a", "is no format string"),
  ],
)
def test_a_template_holds_no_code(template, message):
  with pytest.raises(ValueError, match=message):
    template_fields(template)


def test_keys_are_names():
  assert text_keys_of("text") == ("text",)
  assert text_keys_of(["a", "b"]) == ("a", "b")
  for keys in ([], "", [1], None):
    with pytest.raises(ValueError, match="a field's name or several"):
      text_keys_of(keys)
