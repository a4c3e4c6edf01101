import itertools
import json
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers_examples import listed, place
from hypothesis import given
from hypothesis import strategies as st

from hpgrain.records import IGNORE_INDEX
from hpgrain.tokenizer import load_tokenizer
from hpgrain.transforms.chat_templates import TEMPLATES
from hpgrain.transforms.chat_tokens import token_weights
from hpgrain.transforms.conversation import ConversationTransform
from hpgrain.transforms.lazy_tokenizer import LazyTokenizer

_NO = IGNORE_INDEX
ASSETS = os.environ.get("HPGRAIN_TEST_TOKENIZERS")


def chat_record(*turns):
  return {"messages": [{"role": r, "content": c} for r, c in turns]}


# <start> user a <end> <start> assistant b c <end>: 2 5 8 3 2 6 9 10 3.
SHORT = chat_record(("user", "a"), ("assistant", "b c"))
LONG = chat_record(
  ("system", "h"),
  ("user", "a"),
  ("assistant", "b"),
  ("user", "c"),
  ("assistant", "d"),
)
# The same with its first turn, and its last one alone.
SYSTEM, FIRST, LAST = (
  [2, 4, 15, 3],
  [2, 5, 8, 3, 2, 6, 9, 3],
  [2, 5, 10, 3, 2, 6, 11, 3],
)


def made(chat, records, **options):
  transform = ConversationTransform(
    chat, **{"max_seq_len": 40, "chat_template": "chatml", **options}
  )
  examples = transform(records, place)
  return listed(examples), transform.counters.as_dict()


def test_the_assistants_turns_and_their_ends_are_learnt(chat):
  examples, _ = made(chat, [SHORT])
  assert examples == [
    [
      (
        [2, 5, 8, 3, 2, 6, 9, 10],
        [_NO, _NO, _NO, _NO, _NO, 9, 10, 3],
      )
    ]
  ]
  examples, _ = made(chat, [SHORT], labels_are_shifted=False)
  assert examples == [
    [
      (
        [2, 5, 8, 3, 2, 6, 9, 10, 3],
        [_NO, _NO, _NO, _NO, _NO, _NO, 9, 10, 3],
      )
    ]
  ]


def test_weights_come_along(chat):
  record = chat_record(("user", "a"), ("assistant", "b"), ("assistant", "c"))
  record["messages"][1]["weight"] = 0.25
  examples, _ = made(chat, [record, SHORT], labels_are_shifted=False)
  assert examples[0] == [
    (
      [2, 5, 8, 3, 2, 6, 9, 3, 2, 6, 10, 3],
      [_NO] * 6 + [9, 3, _NO, _NO, 10, 3],
      [0] * 6 + [0.25, 0.25, 0, 0, 1, 1],
    )
  ]
  assert examples[1][0][2] == [0] * 6 + [1, 1, 1]


def test_too_long_is_an_error_that_says_what_can_be_done(chat):
  with pytest.raises(
    ValueError,
    match=r"record 1: it has 20 tokens, and max_seq_len=18 holds 19\. Set"
    r" data_transform\.truncation",
  ):
    made(chat, [SHORT, LONG], max_seq_len=18)
  # Its last id is a label alone.
  assert len(made(chat, [LONG], max_seq_len=19)[0][0][0][0]) == 19


def test_the_end_may_be_cut_off(chat):
  ids = SYSTEM + FIRST + LAST
  examples, counters = made(chat, [LONG], max_seq_len=12, truncation="right")
  assert examples[0][0][0] == ids[:12]
  assert examples[0][0][1] == [_NO] * 9 + [9, 3, _NO]
  assert counters["tokens_dropped"] == {"truncated": 7}
  # Of what is left nothing is learnt.
  examples, counters = made(chat, [LONG], max_seq_len=8, truncation="right")
  assert examples == [[]]
  assert counters == {
    "records": 1,
    "examples": 0,
    "tokens_read": 19,
    "tokens": 0,
    "dropped": {"no_label": 1},
    "tokens_dropped": {"no_label": 19},
  }


def test_the_oldest_turns_may_be_left_out(chat):
  examples, counters = made(
    chat, [LONG], max_seq_len=12, truncation="left_turns"
  )
  assert examples[0][0][0] == (SYSTEM + LAST)[:-1]
  assert examples[0][0][1] == [_NO] * 9 + [11, 3]
  assert counters["tokens_dropped"] == {"truncated": 8}
  assert counters["tokens_read"] == 19
  # One turn and the system prompt are the least.
  examples, counters = made(
    chat, [LONG, SHORT], max_seq_len=10, truncation="left_turns"
  )
  assert [len(record) for record in examples] == [0, 1]
  assert counters["dropped"] == {"overlong": 1}
  assert counters["tokens_dropped"] == {"overlong": 19}


def test_the_overlong_may_be_dropped(chat):
  examples, counters = made(
    chat, [LONG, SHORT], max_seq_len=18, truncation="drop"
  )
  assert [len(record) for record in examples] == [0, 1]
  assert counters["dropped"] == {"overlong": 1}
  assert counters["tokens_read"] == 19 + 8


def test_what_teaches_nothing_is_dropped_and_counted(chat):
  silent = chat_record(("user", "a"), ("assistant", "b"))
  silent["messages"][1]["train"] = False
  records = [chat_record(("user", "a")), {"messages": []}, silent, SHORT]
  examples, counters = made(chat, records)
  assert [len(record) for record in examples] == [0, 0, 0, 1]
  assert counters["dropped"] == {"empty": 1, "no_label": 2}
  assert counters["tokens_dropped"] == {"no_label": 3 + 7}


def test_a_label_that_shifting_leaves_out_is_none(chat):
  template = "{% for m in messages %}{% if m.role == 'assistant' %}"
  template += "{% generation %}{{ m.content }} {% endgeneration %}"
  template += "{% else %}{{ m.content }} {% endif %}{% endfor %}"
  record = chat_record(("assistant", "a"), ("user", "b"))
  examples, counters = made(chat, [record], chat_template=template)
  assert examples == [[]]
  assert counters["dropped"] == {"no_label": 1}
  examples, _ = made(
    chat, [record], chat_template=template, labels_are_shifted=False
  )
  assert examples == [[([8, 9], [8, _NO])]]


def test_a_bad_record_is_named_and_not_quoted(chat):
  robot = chat_record(("robot", "secret"))
  for record, message in (
    (robot, "record 1: message 0: its role 'robot' is unknown"),
    ({"text": "secret"}, "record 1: it has none of the fields 'messages'"),
  ):
    with pytest.raises(ValueError, match=message) as caught:
      made(chat, [SHORT, record])
    assert "secret" not in str(caught.value)
  assert made(chat, [SHORT, robot], role_names={"robot": "user"})


def test_options_are_checked(chat):
  for options, message in (
    ({"truncation": "left"}, "truncation must be one of error, right"),
    ({"trained_roles": ("gpt",)}, r"trained_roles may name .* got \['gpt'\]"),
    ({"trained_roles": ()}, "trained_roles may name system, user"),
    ({"role_names": {"x": "y"}}, r"role_names may name .* got \['y'\]"),
    ({"max_seq_len": 0}, "max_seq_len must be at least 1"),
    ({"text_keys": []}, "a field's name or several"),
  ):
    with pytest.raises(ValueError, match=message):
      made(chat, [], **options)


def test_batches_threads_and_pickles_change_nothing(chat):
  records = [SHORT, LONG, chat_record(("user", "a")), LONG, SHORT]
  options = {"max_seq_len": 12, "truncation": "left_turns"}
  transform = ConversationTransform(chat, chat_template="chatml", **options)
  expected = listed(transform(records, place))
  for cut in range(6):
    parts = listed(transform(records[:cut], place))
    assert parts + listed(transform(records[cut:], place)) == expected
  found = []
  threads = [
    threading.Thread(
      target=lambda: found.append(listed(transform(records, place)))
    )
    for _ in range(4)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert found == [expected] * 4
  assert transform.counters.as_dict()["records"] == 5 * (1 + 6 + 4)
  content = pickle.dumps(transform)
  assert len(content) < 3000
  copy = pickle.loads(content)
  assert copy.identity == transform.identity
  assert listed(copy(records, place)) == expected


def test_the_identity_is_of_all_that_decides_the_examples(chat):
  def identity(**options):
    transform = ConversationTransform(
      chat, **{"max_seq_len": 8, "chat_template": "chatml", **options}
    )
    return json.dumps(transform.identity, sort_keys=True)

  plain = identity()
  assert identity(text_keys=None, chat_template=TEMPLATES["chatml"]) == plain
  others = [
    identity(max_seq_len=9),
    identity(chat_template="plain"),
    identity(text_keys="messages"),
    identity(role_names={"robot": "user"}),
    identity(trained_roles=("user",)),
    identity(truncation="drop"),
    identity(template_variables={"x": 1}),
    identity(labels_are_shifted=False),
  ]
  assert len({plain, *others}) == 1 + len(others)


def slow_weights(offsets, spans):
  """Character by character."""
  of = {}
  for begin, end, weight in spans:
    of |= dict.fromkeys(range(begin, end), weight)
  found = [
    [of[c] for c in range(begin, end) if c in of] for begin, end in offsets
  ]
  return [weights[0] if weights else 0 for weights in found]


@given(
  tokens=st.lists(st.integers(1, 4), max_size=12),
  cuts=st.lists(st.integers(0, 40), max_size=8, unique=True).map(sorted),
  weights=st.lists(st.integers(1, 3), min_size=4, max_size=4),
)
def test_tokens_count_as_the_span_they_overlap(tokens, cuts, weights):
  ends = list(itertools.accumulate(tokens))
  offsets = [(end - size, end) for end, size in zip(ends, tokens)]
  spans = [(*p, w) for p, w in zip(zip(cuts[::2], cuts[1::2]), weights)]
  array = np.array(offsets, np.int64).reshape(-1, 2)
  assert token_weights(array, spans).tolist() == slow_weights(offsets, spans)


@given(
  texts=st.lists(
    st.text(st.sampled_from("ab \n.é🙂"), max_size=6), min_size=1, max_size=5
  )
)
def test_masks_are_those_of_transformers_and_of_each_character(
  bpe_folder, texts
):
  roles = itertools.cycle(("user", "assistant"))
  record = chat_record(*zip(roles, texts))
  tokenizer = load_tokenizer(bpe_folder)
  transform = ConversationTransform(
    LazyTokenizer(tokenizer),
    max_seq_len=1000,
    chat_template="plain",
    labels_are_shifted=False,
  )
  examples = transform([record], place)
  expected = tokenizer.apply_chat_template(
    record["messages"],
    chat_template=TEMPLATES["plain"],
    return_assistant_tokens_mask=True,
    return_dict=True,
  )
  mask = expected["assistant_masks"]
  if not any(mask):
    assert len(examples) == 0 and len(texts) == 1
    return
  assert examples.input_ids.tolist() == expected["input_ids"]
  assert (examples.labels != _NO).tolist() == [bool(on) for on in mask]
  rendered = transform._open()[0].render(transform._read(record))
  encoding = tokenizer(
    rendered.text, add_special_tokens=False, return_offsets_mapping=True
  )
  slow = slow_weights(encoding["offset_mapping"], rendered.spans)
  assert [float(on) for on in mask] == slow


def test_offsets_that_leave_out_spaces_lose_no_token(bpe_folder):
  tokenizer = load_tokenizer(bpe_folder)
  from tokenizers import processors

  backend = tokenizer.backend_tokenizer
  backend.post_processor = processors.ByteLevel(trim_offsets=True)
  # What is learnt ends in the spaces, with no token behind them.
  template = "{% for m in messages %}{% generation %}{{ m.content }}"
  template += "{% endgeneration %}<eos>{% endfor %}"
  transform = ConversationTransform(
    LazyTokenizer(tokenizer),
    max_seq_len=1000,
    chat_template=template,
    labels_are_shifted=False,
  )
  record = chat_record(("assistant", "   \n\n  b  "))
  examples = transform([record], place)
  ids = examples.labels[examples.labels != _NO]
  assert tokenizer.decode(ids) == "   \n\n  b  "


@pytest.mark.skipif(not ASSETS, reason="HPGRAIN_TEST_TOKENIZERS is not set")
def test_qwen3s_own_template():
  folder = Path(ASSETS or "") / "qwen3"
  one = chat_record(("user", "Hi"), ("assistant", "Hello"))
  two = chat_record(
    ("user", "Hi"), ("assistant", "Hello"), ("user", "?"), ("assistant", "!")
  )
  tokenizer = load_tokenizer(folder)

  def learnt(records, **options):
    transform = ConversationTransform(
      LazyTokenizer(folder), max_seq_len=100, **options
    )
    labels = transform(records, place).labels
    return tokenizer.decode(labels[labels != _NO])

  # As its generation prompt goes on, with and without thinking.
  assert learnt([one]) == "<think>\n\n</think>\n\nHello<|im_end|>"
  quick = {"enable_thinking": False}
  assert learnt([one], template_variables=quick) == "Hello<|im_end|>"
  with pytest.raises(
    ValueError,
    match=r"record 1: the chat template renders message 1.*'chatml'",
  ):
    learnt([one, two])
  chatml = learnt([two], chat_template="chatml")
  assert chatml == "Hello<|im_end|>!<|im_end|>"
