r"""Chat templates of our own, which say themselves what the model learns.

  chatml   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n
                                                                 ~~~~~~~~~~~~
  plain    user:\nHi<eos>\nassistant:\nYo<eos>\n
                                        ~~~~~~~

What is underlined stands in {% generation %}: the turn's text and what ends
it, not the name before it, nor the line end behind. A turn is rendered alike
wherever it stands, so what is learnt is what generation will see. Both know
tools, tool calls and `reasoning_content`. `chatml` is for tokenizers that have
its two tokens, `plain` for those that have but an EOS.
"""

import datetime
import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from transformers import PreTrainedTokenizerBase

# Instead of a template: the one that the tokenizer brings.
OWN = "tokenizer"

_TODAY = re.compile(r"""strftime_now\(\s*("[^"]*"|'[^']*')\s*\)""")
_GENERATION = re.compile(r"\{%-?\+?\s*generation\s*-?%\}")

# How Hermes and Qwen models were taught to call tools.
_BEFORE_TOOLS = (
  "# Tools\n\nYou may call one or more functions to assist with the user"
  " query.\n\nYou are provided with function signatures within"
  " <tools></tools> XML tags:\n<tools>"
)
_AFTER_TOOLS = (
  "\n</tools>\n\nFor each function call, return a json object with function"
  " name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
  '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
_BODIES = r"""
{%- macro tools_text() -%}
  {{- before_tools -}}
  {%- for tool in tools %}{{ "\n" }}{{ tool | tojson }}{% endfor -%}
  {{- after_tools -}}
{%- endmacro %}
{%- macro body(message) -%}
  {%- if message.role == "tool" -%}
    {{- "<tool_response>\n" + message.content + "\n</tool_response>" -}}
  {%- else -%}
    {%- if message.reasoning_content -%}
      {{- "<think>\n" + message.reasoning_content + "\n</think>\n\n" -}}
    {%- endif -%}
    {{- message.content -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set call = call.function or call -%}
      {%- if message.content or not loop.first %}{{ "\n" }}{% endif -%}
      {{- '<tool_call>\n{"name": "' + call.name + '", "arguments": ' -}}
      {%- if call.arguments is string %}{{ call.arguments }}
      {%- else %}{{ call.arguments | tojson }}{% endif -%}
      {{- "}\n</tool_call>" -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro %}"""

_TURNS = r"""
{%- set turns = messages %}
{%- if tools %}
  {%- if messages and messages[0].role == "system" %}
    {%- set prompt = messages[0].content + "\n\n" + tools_text() %}
    {%- set turns = [{"role": "system", "content": prompt}] + messages[1:] %}
  {%- else %}
    {%- set turns = [{"role": "system", "content": tools_text()}] + messages %}
  {%- endif %}
{%- endif %}
{%- for message in turns %}
  {{- HEAD }}
  {%- if message.role in (trained_roles or ["assistant"]) %}
    {%- generation %}{{ body(message) + TAIL }}{% endgeneration %}
  {%- else %}
    {{- body(message) + TAIL }}
  {%- endif %}
  {{- "\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
  {%- set message = {"role": "assistant"} %}
  {{- HEAD }}
{%- endif %}"""


def _template(head: str, tail: str) -> str:
  turns = _TURNS.replace("HEAD", head).replace("TAIL", tail)
  texts = {"before_tools": _BEFORE_TOOLS, "after_tools": _AFTER_TOOLS}
  bodies = _BODIES
  for name, text in texts.items():
    # A JSON string is a Jinja string, too.
    bodies = bodies.replace(name, json.dumps(text))
  return (bodies + turns).lstrip("\n")


TEMPLATES = {
  "chatml": _template('"<|im_start|>" + message.role + "\\n"', '"<|im_end|>"'),
  "plain": _template('message.role + ":\\n"', "eos_token"),
}


def find_template(
  value: str | None, tokenizer: "PreTrainedTokenizerBase"
) -> str:
  """The template that `model_assets.chat_template` stands for.

  Args:
    value: a name of ours, a Jinja template, or "tokenizer" for the
      tokenizer's own, as is None.
    tokenizer: what `load_tokenizer` returned.

  Raises:
    ValueError: the tokenizer has none, or it is no name of ours.
  """
  if value in TEMPLATES:
    template = TEMPLATES[value]
    if "eos_token" in template and tokenizer.eos_token is None:
      raise ValueError(
        f"model_assets.chat_template={value!r} ends turns by the tokenizer's"
        " EOS token, and it has none. Set eos_token in its"
        " tokenizer_config.json."
      )
    return template
  if value in (None, OWN):
    own = tokenizer.chat_template
    if isinstance(own, dict):
      own = own.get("default")
    if not isinstance(own, str):
      raise ValueError(
        f"The tokenizer {tokenizer.name_or_path!r} has no chat template of its"
        f" own. Set model_assets.chat_template to {_ours()}, or to a Jinja"
        " template."
      )
    return own
  if "{%" in value or "{{" in value:
    return value
  raise ValueError(
    f"model_assets.chat_template must be {_ours()}, {OWN!r} for the"
    f" tokenizer's own, or a Jinja template, got {value!r}."
  )


def fix_day(template: str, date: str | None) -> str:
  """A template that says the same every day.

  Some put today's date into the text, by `strftime_now("%d %b %Y")`.

  Args:
    template: Jinja.
    date: the day to put in its place, as "2025-01-31".

  Raises:
    ValueError: the template asks for today's date and there is no day, or in
      a way that is not understood.
  """
  if "strftime_now(" not in template:
    return template
  if date is None:
    raise ValueError(
      "The chat template puts today's date into the text, so another day would"
      " give other rows. Set data_transform.template_date to a day, as"
      " '2025-01-31', or take another template."
    )
  try:
    day = datetime.datetime.fromisoformat(date)
  except (ValueError, TypeError):
    raise ValueError(
      "data_transform.template_date must be a day like '2025-01-31', got"
      f" {date!r}."
    ) from None
  fixed = _TODAY.sub(
    lambda found: repr(day.strftime(found.group(1)[1:-1])), template
  )
  if "strftime_now(" in fixed:
    raise ValueError(
      "The chat template works out the form of today's date, which cannot be"
      " replaced by data_transform.template_date. Give a template with the"
      " date written out."
    )
  return fixed


def marks_generation(template: str) -> bool:
  """Whether a template says itself what is learnt, by {% generation %}."""
  return _GENERATION.search(template) is not None


def _ours() -> str:
  return " or ".join(map(repr, sorted(TEMPLATES)))
