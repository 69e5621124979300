from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
from environments.chat_format import ChatFormat
from environments.protocol import render_call
from training.tokenizer import PROTOCOL, SPECIAL, train_tokenizer

VOCABULARY = 1150
FIRM = Company(CompanySpec(seed=1, projects=24))


def texts() -> list[str]:
    """Mails, and calls that name the same things at the opening of a JSON string."""
    mails = FIRM.documents()
    told = [f"{mail.id} | {mail.subject}\n{mail.body}" for mail in mails]
    names = [name for kind in FIRM.entities.values() for name in kind]
    rng = random.Random(0)
    calls = [render_call("search_keyword", {"keywords": [name, "owner"]}) for _ in range(4) for name in names]
    calls += [render_call("submit", {"answer": name, "evidence": [mails[0].id]}) for name in names]
    calls += [render_call("read_mail", {"id": rng.choice(mails).id}) for _ in range(50)]
    return told + calls


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(texts(), VOCABULARY, 512)


# hypothesis runs many examples in one test, so it takes the tokenizer from here
TOKENIZER = train_tokenizer(texts(), VOCABULARY, 512)


def ids(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False))


def shown(text: str) -> list[str]:
    return [TOKENIZER.decode([i]) for i in ids(text)]


def pieces(text: str) -> list[str]:
    backend: Any = TOKENIZER.backend_tokenizer
    return [text[start:end] for _, (start, end) in backend.pre_tokenizer.pre_tokenize_str(text)]


def test_the_same_texts_give_the_same_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    first: Any = TOKENIZER.backend_tokenizer
    second: Any = tokenizer.backend_tokenizer
    assert first.to_str() == second.to_str()


def test_the_vocabulary_has_the_size_asked_for_and_the_tags_at_its_end() -> None:
    assert len(TOKENIZER) == VOCABULARY
    assert [TOKENIZER.convert_tokens_to_ids(t) for t in SPECIAL] == [0, 1, 2]
    assert [TOKENIZER.convert_tokens_to_ids(t) for t in PROTOCOL] == list(range(VOCABULARY - len(PROTOCOL), VOCABULARY))
    assert TOKENIZER.eos_token == "<|im_end|>"
    assert TOKENIZER.pad_token == "<|endoftext|>"
    assert TOKENIZER.model_max_length == 512


def test_every_name_is_one_token_after_a_blank_and_at_the_opening_of_a_string() -> None:
    for person in FIRM.entities["person"]:
        first, last = person.split()
        assert shown(f" {first} {last}") == [f" {first}", f" {last}"]
        call = shown(render_call("search_keyword", {"keywords": [person, "owner"]}))
        at = call.index(first)
        assert call[at : at + 2] == [first, f" {last}"]


def test_a_call_is_cut_at_its_names_and_values() -> None:
    assert pieces('{"name": "search_keyword", "arguments": {"keywords": ["Mira Okafor", "desk"]}}') == [
        '{"name": "search_keyword", "arguments": {"keywords": ["', "Mira", " Okafor", '", "', "desk", '"]}}',
    ]  # fmt: skip
    assert pieces('{"name": "read_mail", "arguments": {"id": "4083"}}') == [
        '{"name": "read_mail", "arguments": {"id": "', "40", "83", '"}}',
    ]  # fmt: skip
    submit = '{"name": "submit", "arguments": {"question": "Who owns X?", "answer": "Y", "evidence": ["12", "34"]}}'
    assert pieces(submit) == [
        '{"name": "submit", "arguments": {"question": "', "Who", " owns", " X", '?", "answer": "', "Y",
        '", "evidence": ["', "12", '", "', "34", '"]}}',
    ]  # fmt: skip


def test_choosing_a_tool_is_one_token() -> None:
    for name, key in (("search_keyword", "keywords"), ("read_mail", "id"), ("submit", "answer")):
        value: object = ["desk"] if key == "keywords" else "desk"
        opening = shown(render_call(name, {key: value}))
        assert opening[:2] == ["<tool_call>", "\n"]
        assert opening[2] == f'{{"name": "{name}", "arguments": {{"{key}": ' + ('["' if key == "keywords" else '"')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at desk 12-34.", ["at", " desk", " ", "12", "-", "34", "."]),
        ("budget $5731,", ["budget", " $", "57", "31", ","]),
        ("contract C6845", ["contract", " C", "68", "45"]),
        ("Monday at 9:30", ["Monday", " at", " ", "9", ":", "30"]),
        ("a\n\nb", ["a", "\n", "\n", "b"]),
        ("4083 | Amber", ["40", "83", " |", " Amber"]),
        ("12345", ["12", "34", "5"]),
    ],
)
def test_digits_go_in_pairs_and_other_signs_run_together(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@given(st.integers(0, 9999).map("{:04d}".format))
def test_a_number_is_the_same_tokens_wherever_it_stands(number: str) -> None:
    cut = ids(number)
    assert [TOKENIZER.decode([i]) for i in cut] == [number[:2], number[2:]]
    for before, after in (("", " | Amber"), ("on desk ", "."), ("$", ", no"), ('["', '"]}}'), ("\n", "\n")):
        around = ids(f"{before}{number}{after}")
        assert any(around[k : k + 2] == cut for k in range(len(around)))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_comes_back_from_its_ids(text: str) -> None:
    assert TOKENIZER.decode(ids(text), skip_special_tokens=False) == text


@given(
    st.lists(
        st.sampled_from([*SPECIAL, *PROTOCOL, " ", "\n", "Mira", " Okafor", "42", '{"name": "', '"}}', "é", "🦊"]),
        max_size=12,
    )
)
def test_tags_between_texts_come_back_too_and_are_one_token_each(parts: list[str]) -> None:
    text = "".join(parts)
    assert TOKENIZER.decode(ids(text), skip_special_tokens=False) == text
    tags = [part for part in parts if part in (*SPECIAL, *PROTOCOL)]
    assert [t for t in shown_raw(text) if t in (*SPECIAL, *PROTOCOL)] == tags


def shown_raw(text: str) -> list[str]:
    return [TOKENIZER.convert_ids_to_tokens(i) for i in ids(text)]  # type: ignore[misc]


def test_the_template_writes_chatml_and_tool_results_as_user_turns() -> None:
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A"},
        {"role": "tool", "content": "T"},
    ]
    plain = (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nT\n</tool_response><|im_end|>\n"
    )
    assert TOKENIZER.apply_chat_template(messages, tokenize=False) == plain
    opened = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert opened == f"{plain}<|im_start|>assistant\n"


def test_the_template_only_grows_so_that_nothing_is_encoded_twice() -> None:
    chat = ChatFormat(TOKENIZER)
    assert chat.notes == ()
    assert chat.end_of_turn_ids == (TOKENIZER.eos_token_id,)
    assert set(chat.special_tokens()) == {*SPECIAL, *PROTOCOL}
    prompt = [{"role": "system", "content": "S"}, {"role": "user", "content": "Who owns Amber Falcon?"}]
    turn = render_call("read_mail", {"id": "4083"})
    recorded = [*chat.prompt_ids(prompt), *chat.turn_ids(turn), *chat.observation_ids("4083 | Hi", ended=True)]
    messages = [*prompt, {"role": "assistant", "content": turn}, {"role": "tool", "content": "4083 | Hi"}]
    assert chat.explain_drift(recorded, messages) is None
    assert recorded == chat.prompt_ids(messages)


def test_a_mail_cannot_write_a_tag() -> None:
    chat = ChatFormat(TOKENIZER)
    for tag in (*SPECIAL, *PROTOCOL):
        assert TOKENIZER.convert_tokens_to_ids(tag) not in chat.content_ids(f"x {tag} y")


def test_too_few_texts_give_a_smaller_vocabulary_that_still_writes_everything() -> None:
    small = train_tokenizer(["x"], 300, 128)
    assert len(small) <= 300
    assert small.decode(small.encode("Zürich 🦊", add_special_tokens=False)) == "Zürich 🦊"
    assert list(islice(small.all_special_tokens, 2))
