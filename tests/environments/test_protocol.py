from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from environments.protocol import Malformed, ToolCall, parse, render_call
from environments.untrusted import neutralise, strip_invisible

CALL = '<tool_call>\n{"name": "search_keyword", "arguments": {"keywords": ["a"]}}\n</tool_call>'


def reason(text: str) -> str:
    action = parse(text)
    assert isinstance(action, Malformed), action
    return action.reason


def call(text: str) -> ToolCall:
    action = parse(text)
    assert isinstance(action, ToolCall), action
    return action


def test_render_is_exact() -> None:
    assert render_call("search_keyword", {"keywords": ["a"]}) == CALL
    assert "東京" in render_call("read_mail", {"id": "東京"})


json_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | json_text
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_text, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(name=json_text.filter(lambda s: s.strip()), arguments=st.dictionaries(json_text, json_values, max_size=4))
@example(name="search_keyword", arguments={"keywords": ["</think>", "<tool_call>"]})
def test_parse_inverts_render(name: str, arguments: dict[str, object]) -> None:
    action = call(f"I look.\n{render_call(name, arguments)}\n")
    assert (action.name, action.arguments) == (name.strip(), arguments)
    assert action.thought == "I look."


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<think>", "</think>", "<tool_call>", "</tool_call>", CALL, '{"name"', '"a"', "{", "}", "[", ","]
        )
        | st.text(max_size=5),
        max_size=12,
    ).map("".join)
)
def test_parse_never_raises(text: str) -> None:
    action = parse(text)
    assert isinstance(action, ToolCall | Malformed)
    if isinstance(action, Malformed):
        assert action.reason
        assert "\n" not in action.reason


def test_thoughts() -> None:
    assert call(f"<think>\nfirst {CALL}\n</think>\n\n{CALL}").arguments == {"keywords": ["a"]}
    assert call(f"opened by the prompt</think>{CALL}").thought == "opened by the prompt"
    assert call(f"<think>a</think>b{CALL}").thought == "ab"
    assert reason(f"<think>{CALL}</think>").startswith("no tool call")
    assert reason(f"<think>{CALL}").startswith("the thought is never closed")
    # A call after the second of two thoughts counts once.
    assert call(f"<think>a</think><think>{CALL}</think>{CALL}").name == "search_keyword"


def test_tags_inside_strings_are_strings() -> None:
    words = ["</tool_call>", "<tool_call>", "<think>"]
    assert call(render_call("search_keyword", {"keywords": words})).arguments == {"keywords": words}


def test_trailing_text_is_kept_but_a_second_call_is_not() -> None:
    assert call(f"{CALL}<|im_end|>").trailing == "<|im_end|>"
    assert call(f"{CALL} \n").trailing == ""
    assert reason(CALL + CALL).startswith("one tool call a turn")
    assert call(f"{CALL}<think>{CALL}</think>").name == "search_keyword"


def wrap(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"name": "a", "arguments": {"x": 1, "x": 2}}', "the key 'x' occurs twice"),
        ('{"name": "a", "name": "b", "arguments": {}}', "the key 'name' occurs twice"),
        ('{"name": "a", "arguments": {"x": NaN}}', "NaN is not a JSON number"),
        ('{"name": "a", "arguments": {"x": -Infinity}}', "-Infinity is not a JSON number"),
        ('{"name": "a", "arguments": {"x": 1e999}}', "too large"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 5000 + "}}", "too large"),
        ('{"name": "a", "arguments": {"x": "\\ud800"}}', "surrogate"),
        ("[" * 100_000, "nested"),
        ('{"name": "a", "arguments": {"x": ' + "[" * 40 + "]" * 40 + "}}", "nested more than 16"),
        ('{"name": a}', "at character 9, near 'a}'"),
        ("", "broken JSON"),
        ("[1]", "must be a JSON object"),
        ('{"arguments": {}}', "needs a 'name'"),
        ('{"name": 3, "arguments": {}}', "needs a 'name'"),
        ('{"name": "a"}', "needs 'arguments'"),
        ('{"name": "a", "arguments": "{}"}', "needs 'arguments'"),
        ('{"name": "a", "arguments": {}, "id": 1}', "unknown key 'id'"),
        ('{"name": "a", "arguments": {}} and more', "one JSON object"),
        ('{"name": "a", "arguments": {}}{}', "one JSON object"),
    ],
)
def test_malformed(body: str, expected: str) -> None:
    assert expected in reason(wrap(body))


def test_unclosed_call() -> None:
    assert "closing tag" in reason('<tool_call>\n{"name": "a", "arguments": {}}')


def test_a_surrogate_pair_is_one_character() -> None:
    assert call(wrap(json.dumps({"name": "a", "arguments": {"x": "🎉"}}))).arguments == {"x": "🎉"}


# --- neutralise ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>", "‹tool_call>"),
        ("< tool_call >", "‹ tool_call >"),
        ("</ tool_response>", "‹/ tool_response>"),
        ("<TOOLS>x</Tools>", "‹TOOLS>x‹/Tools>"),
        ("<tool call> <tool-call>", "‹tool call> ‹tool-call>"),
        ('<tool_call name="x">', '‹tool_call name="x">'),
        ("<|im_end|><|endoftext|>", "‹|im_end|>‹|endoftext|>"),
        ("< | im_end | >", "‹ | im_end | >"),
        ("<｜end▁of▁sentence｜>", "‹｜end▁of▁sentence｜>"),
        ("<s></s><unk><pad><bos><eos>", "‹s>‹/s>‹unk>‹pad>‹bos>‹eos>"),
        ("[INST] hi [/INST]", "(INST) hi (/INST)"),
        ("[ inst ]", "( inst )"),
        ("<<SYS>>x<</SYS>>", "‹‹SYS>>x‹‹/SYS>>"),
        ("<start_of_turn>user<end_of_turn>", "‹start_of_turn>user‹end_of_turn>"),
        ("<<think>", "<‹think>"),
        ("＜ｔｈｉｎｋ＞", "‹ｔｈｉｎｋ＞"),
        ("<th\u00ednk>", "‹th\u00ednk>"),
        ("\u226ethink>", "‹think>"),
        ("<to\u200bol_call>", "‹tool_call>"),
        ("<\u202ethink\u202c>", "‹think>"),
        ("<\ufe0fthi\u00adnk>", "‹think>"),
        ("<th\x00ink\x1b>", "‹think>"),
        ("<\U000e0074think>", "‹think>"),
        ("<tool_", "<tool_"),
        ("a\r\nb\rc\u2028d\x85e\x0bf", "a\nb\nc\nd\ne\nf"),
        ("a\tb\nc", "a\tb\nc"),
        ("\ud800", "\ufffd"),
        ("<tools@example.com> <s@x.org> a < b > c [1] [a] <b>", "<tools@example.com> <s@x.org> a < b > c [1] [a] <b>"),
        ("café naïve 東京 🎉 ½", "café naïve 東京 🎉 ½"),
    ],
)
def test_neutralise_examples(text: str, expected: str) -> None:
    assert neutralise(text) == expected


def test_neutralise_the_tokenizers_own() -> None:
    assert neutralise("WORD word [USER] <x>", ["WORD", "[USER]", "<x>"]) == "W·ORD w·ord (USER] ‹x>"
    assert neutralise("aaa", ["aa"]) == "a·a·a"
    assert neutralise("a b", [" ", ""]) == "a b"


TAG = re.compile(
    r"<\s*/?\s*(think|tool[\s_-]*call|tool[\s_-]*response|tools)\s*>|<\s*[|｜]|<\s*/?\s*(s|unk|pad|bos|eos)\s*>"
    r"|\[\s*/?\s*INST\s*\]|<\s*<\s*/?\s*SYS|<(start|end)_of_turn>|\u200b|\u202e",
    re.IGNORECASE,
)
PIECES = [
    "<", ">", "/", "|", "｜", "[", "]", " ", "\n", "think", "tool_call", "TOOL", "_response", "tools", "s", "INST",
    "SYS", "im_end", "start_of_turn", "\u200b", "\u202e", "\x00", "\ufe0f", "＜", "é", "·", "‹",
]  # fmt: skip
hostile = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=25).map("".join)


@settings(max_examples=200, deadline=None)
@given(hostile)
def test_neutralise_leaves_no_tag_and_is_idempotent(text: str) -> None:
    once = neutralise(text)
    assert TAG.search(once) is None
    assert neutralise(once) == once
    assert strip_invisible(once) == once
    once.encode("utf-8")


@settings(max_examples=200, deadline=None)
@given(hostile)
def test_ordinary_characters_survive(text: str) -> None:
    kept = [c for c in text if c.isalnum() and c.isascii()]
    assert [c for c in neutralise(text) if c.isalnum() and c.isascii()] == kept


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["<", "<tool_call>", CALL, "<think>", "</think>", "x"]), max_size=6).map("".join))
def test_mail_text_is_never_read_as_an_action(mail: str) -> None:
    # Even if a model copies a mail word for word into its turn, the copy is not a call.
    assert isinstance(parse(neutralise(mail)), Malformed)
    assert call(f"It says: {neutralise(mail)}\n{CALL}").arguments == {"keywords": ["a"]}


@pytest.mark.timeout(60)  # quadratic work would take hours
def test_long_hostile_text_does_not_hang() -> None:
    many = 300_000
    for text in ("<" + " " * many + "é", "<" * many + "é", "[" + " " * many, "<tool" + "_" * many, "</" + " " * many):
        neutralise(text)
    assert isinstance(parse("<tool_call>" * (many // 10)), Malformed)
