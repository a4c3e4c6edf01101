import pytest

from hpgrain.transforms.chat_templates import (
  TEMPLATES,
  find_template,
  fix_day,
  marks_generation,
)
from hpgrain.transforms.messages import Conversation
from hpgrain.transforms.rendering import Renderer

# A turn looks alike wherever it stands.
STABLE = (
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
  "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Thoughts are shown in the last turn only, as Qwen3's template does.
FORGETFUL = (
  "{% for m in messages %}<{{ m.role }}>"
  "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
  "{{ m.content }}<end>\n{% endfor %}"
  "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MARKED = (
  "{% for m in messages %}{% if m.role == 'assistant' %}"
  "<assistant>{% generation %}{{ m.content }}<end>{% endgeneration %}"
  "{% else %}<{{ m.role }}>{{ m.content }}<end>{% endif %}{% endfor %}"
)


def renderer(template, *, trained_roles=("assistant",), **variables):
  return Renderer(
    template,
    special_tokens={"eos_token": "<eos>"},
    trained_roles=trained_roles,
    end_tokens=["<end>", "<eos>", "<|im_end|>"],
    variables=variables,
  )


def conversation(*turns, tools=None):
  """Turns as (role, content[, weight])."""
  messages = [{"role": turn[0], "content": turn[1]} for turn in turns]
  weights = [
    float(turn[2]) if len(turn) > 2 else float(turn[0] == "assistant")
    for turn in turns
  ]
  return Conversation(messages, weights, tools)


def learnt(template, chat, **options):
  rendered = renderer(template, **options).render(chat)
  return [(rendered.text[a:b], weight) for a, b, weight in rendered.spans]


TWO = conversation(
  ("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b")
)


def test_prefixes_show_what_is_learnt():
  assert learnt(STABLE, TWO) == [("a<end>", 1), ("b<end>", 1)]
  # Without a token that ends it, a turn ends where the next one begins.
  assert learnt(STABLE.replace("<end>", "."), TWO) == [
    ("a.\n", 1),
    ("b.\n", 1),
  ]


def test_a_turn_that_changes_later_is_refused():
  one = conversation(("user", "q"), ("assistant", "a"))
  assert learnt(FORGETFUL, one) == [("<think></think>a<end>", 1)]
  with pytest.raises(
    ValueError,
    match=r"renders message 1, or what is before it, in another way once more"
    r" messages follow.*chat_template='chatml'",
  ):
    learnt(FORGETFUL, TWO)
  # The last one alone is learnt, so nothing before it matters.
  last = conversation(
    ("user", "q"), ("assistant", "a", 0), ("user", "r"), ("assistant", "b")
  )
  assert learnt(FORGETFUL, last) == [("<think></think>b<end>", 1)]


def test_a_prompt_that_the_turn_does_not_have_is_refused():
  other = STABLE.replace("%}<assistant>{%", "%}<assistant><think>{%")
  with pytest.raises(
    ValueError, match="renders message 1 in another way than its own generation"
  ):
    learnt(other, TWO)


def test_a_template_without_a_prompt_must_begin_with_the_content():
  unprompted = STABLE[: STABLE.index("{% if add")]
  with pytest.raises(ValueError, match="introduces message 1 cannot be told"):
    learnt(unprompted, TWO)
  bracketed = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}"
    "[/INST]{% else %} {{ m.content }}<end>{% endif %}{% endfor %}"
  )
  assert learnt(bracketed, TWO) == [(" a<end>", 1), (" b<end>", 1)]


def test_marks_are_taken_where_a_template_has_them():
  assert marks_generation(MARKED) and not marks_generation(STABLE)
  assert marks_generation("{%- generation -%}")
  assert learnt(MARKED, TWO) == [("a<end>", 1), ("b<end>", 1)]
  weighed = conversation(
    ("user", "q"), ("assistant", "a", 0.5), ("assistant", "b", 0)
  )
  assert learnt(MARKED, weighed) == [("a<end>", 0.5)]
  assert learnt(MARKED, conversation(("user", "q"))) == []


def test_marks_that_mark_nothing_are_refused():
  nothing = MARKED.replace("m.role == 'assistant'", "m.role == 'model'")
  with pytest.raises(ValueError, match="marks nothing of this conversation"):
    learnt(nothing, TWO)
  joined = "{% generation %}{% for m in messages %}{{ m.content }}{% endfor %}"
  joined += "{% endgeneration %}"
  assert learnt(joined, TWO) == [("qarb", 1)]
  weighed = conversation(("assistant", "a", 0.5), ("assistant", "b", 1))
  with pytest.raises(
    ValueError, match=r"2 messages to learn have weights that differ.* marks 1"
  ):
    learnt(joined, weighed)


def test_ours_in_full():
  chat = conversation(("system", "s"), ("user", "q"), ("assistant", "a"))
  chatml = renderer(TEMPLATES["chatml"]).render(chat)
  assert chatml.text == (
    "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
    "<|im_start|>assistant\na<|im_end|>\n"
  )
  assert learnt(TEMPLATES["chatml"], chat) == [("a<|im_end|>", 1)]
  plain = renderer(TEMPLATES["plain"]).render(chat)
  assert plain.text == "system:\ns<eos>\nuser:\nq<eos>\nassistant:\na<eos>\n"
  assert learnt(TEMPLATES["plain"], chat) == [("a<eos>", 1)]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_ours_render_a_turn_alike_wherever_it_stands(name):
  call = {"function": {"name": "f", "arguments": {"x": 1}}}
  messages = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": [call, call]},
    {"role": "tool", "content": "1"},
    {"role": "assistant", "content": "a", "reasoning_content": "r"},
    {"role": "user", "content": "q2"},
    {"role": "assistant", "content": "a2"},
  ]
  tools = [{"type": "function", "function": {"name": "f"}}]
  weights = [float(m["role"] == "assistant") for m in messages]
  by_marks = renderer(TEMPLATES[name])
  by_prefixes = renderer(TEMPLATES[name])
  by_prefixes._marks = False
  chat = Conversation(messages, weights, tools)
  marked = by_marks.render(chat)
  assert marked == by_prefixes.render(chat)
  end = {"chatml": "<|im_end|>", "plain": "<eos>"}[name]
  called = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
  assert [marked.text[a:b] for a, b, _ in marked.spans] == [
    f"{called}\n{called}{end}",
    f"<think>\nr\n</think>\n\na{end}",
    f"a2{end}",
  ]
  assert '<tools>\n{"type": "function", "function"' in marked.text


def test_any_role_may_be_learnt_by_ours_alone():
  chat = conversation(("user", "q", 1), ("assistant", "a", 0))
  assert learnt(
    TEMPLATES["chatml"], chat, trained_roles=("user", "assistant")
  ) == [("q<|im_end|>", 1)]
  with pytest.raises(ValueError, match="of a chat template that is not ours"):
    renderer(STABLE, trained_roles=("user",))
  tools = conversation(("user", "q", 1), tools=[{"name": "f"}])
  roles = ("user", "system")
  assert learnt(TEMPLATES["chatml"], tools, trained_roles=roles) == [
    ("q<|im_end|>", 1)
  ]


def test_what_a_template_says_is_shown_only_if_it_is_its_own():
  refusing = (
    "{{ raise_exception('roles must alternate') }}{% generation %}"
    "{% endgeneration %}"
  )
  with pytest.raises(ValueError, match=r"2 messages \(roles must alternate\)"):
    learnt(refusing, conversation(("user", "secret"), ("assistant", "a")))
  quoting = refusing.replace("'roles must alternate'", "messages[0].content")
  with pytest.raises(ValueError, match=r"\(TemplateError\)") as caught:
    learnt(quoting, conversation(("user", "secret"), ("assistant", "a")))
  assert "secret" not in str(caught.value)


def test_variables_reach_the_template():
  template = "{{ mode }}" + MARKED
  rendered = renderer(template, mode="fast").render(TWO)
  assert rendered.text.startswith("fast<user>")


def test_todays_date_is_another_days():
  template = "{% if strftime_now is defined %}{{ strftime_now('%d %b') }}"
  fixed = fix_day(template + "{% endif %}" + MARKED, "2025-01-31")
  rendered = renderer(fixed).render(TWO)
  assert rendered.text.startswith("31 Jan<user>")
  assert fix_day(MARKED, None) == MARKED
  for date, message in (
    (None, "another day would give other rows.*template_date"),
    ("today", "must be a day like '2025-01-31', got 'today'"),
  ):
    with pytest.raises(ValueError, match=message):
      fix_day(template, date)
  with pytest.raises(ValueError, match="works out the form of today's date"):
    fix_day("{{ strftime_now(form) }}", "2025-01-31")


def test_templates_have_names(bpe):
  assert find_template("chatml", bpe) == TEMPLATES["chatml"]
  assert find_template(STABLE, bpe) == STABLE
  for value in (None, "tokenizer"):
    with pytest.raises(
      ValueError, match=r"no chat template of its own.*'chatml' or 'plain'"
    ):
      find_template(value, bpe)
  bpe.chat_template = MARKED
  assert find_template(None, bpe) == MARKED
  with pytest.raises(
    ValueError, match=r"must be 'chatml' or 'plain', .*'chat'"
  ):
    find_template("chat", bpe)
  bpe.eos_token = None
  with pytest.raises(ValueError, match="ends turns by the tokenizer's EOS"):
    find_template("plain", bpe)


def test_a_template_that_is_no_jinja_is_not_the_records_fault():
  with pytest.raises(
    ValueError, match=r"model_assets\.chat_template is no Jinja .*line 1, "
  ):
    renderer("{% for m in messages %}{{ m }").render(TWO)
