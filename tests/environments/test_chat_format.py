from __future__ import annotations

import pytest
from chat_templates import QWEN25, SMOLLM2, STYLES, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.chat_format import ChatFormat, ChatFormatError
from environments.protocol import neutralise, render_call
from environments.recorder import Recorder

# What stands between an unended assistant turn and the text, and between the text and the next sampled token.
GLUE = {
    "qwen2.5": (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n",
        "\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama3": (
        "<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "gemma": (
        "<end_of_turn>\n<start_of_turn>user\n<tool_response>\n",
        "\n</tool_response><end_of_turn>\n<start_of_turn>model\n",
    ),
}
GLUE["qwen3"] = GLUE["smollm2"] = GLUE["qwen2.5"]
PROMPT = {
    "qwen2.5": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "<bos><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\n",
}
PROMPT["qwen3"] = PROMPT["smollm2"] = PROMPT["qwen2.5"]
EOT = {style: glue[0][: glue[0].index(">") + 1] for style, glue in GLUE.items()}
MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]

_formats: dict[str, ChatFormat] = {}


def chat(style: str) -> ChatFormat:
    return _formats.setdefault(style, ChatFormat(tokenizer(style)))


all_styles = pytest.mark.parametrize("style", list(STYLES))
BORDERS = ["", " ", "\n", "\n\n", "  two", "東京", "。", "🎉", "👩‍👩‍👧", "é", "\t", '"', "1234", "<", "|>", "\u00a0"]
texts = st.lists(st.sampled_from([*BORDERS, "Amber Falcon", "the review"]) | st.text(max_size=8), max_size=6).map(
    lambda parts: "".join(parts)
)


def plain(text: str) -> str:
    """Text a byte-level tokenizer can hold (no unpaired surrogates)."""
    return text.encode("utf-8", "replace").decode()


@all_styles
def test_prompt_and_glue_are_what_the_template_writes(style: str) -> None:
    form = chat(style)
    tok = tokenizer(style)
    assert tok.decode(form.prompt_ids(MESSAGES)) == PROMPT[style]
    before, after = GLUE[style]
    assert tok.decode(form.observation_ids("2 hits", ended=False)) == f"{before}2 hits{after}"
    ended = form.observation_ids("2 hits", ended=True)
    assert [form.end_of_turn_id, *ended] == form.observation_ids("2 hits", ended=False)
    assert form.end_of_turn_id == tok.convert_tokens_to_ids(EOT[style])
    assert tok.eos_token_id in form.end_of_turn_ids


@all_styles
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_trained_ids_are_the_sampled_ids(style: str, data: st.DataObject) -> None:
    form, tok = chat(style), tokenizer(style)
    any_id = st.integers(0, len(tok) - 1)
    prompt = form.prompt_ids(MESSAGES)
    recorder = Recorder(prompt)
    turns: list[list[int]] = []
    fed = list(prompt)
    for _ in range(data.draw(st.integers(1, 4))):
        ids = data.draw(st.lists(any_id, min_size=1, max_size=12))
        ids += [form.end_of_turn_id] * data.draw(st.booleans())
        text = plain(data.draw(texts))
        observation = form.observation_ids(text, ended=form.ended(ids))
        recorder.sampled(ids, [-float(i % 7) for i in ids])
        recorder.observed(observation)
        before = list(fed)
        fed += [*ids, *observation]
        assert recorder.token_ids == fed
        assert fed[: len(before)] == before
        turns.append(ids)
        # The observation reads back exactly, wherever its borders fall.
        expected = "".join(
            (
                GLUE[style][0].removeprefix(EOT[style]) if ids[-1] == form.end_of_turn_id else GLUE[style][0],
                text,
                GLUE[style][1],
            )
        )
        assert tok.decode(observation, clean_up_tokenization_spaces=False) == expected
    sampled = [token for token, mask in zip(recorder.token_ids, recorder.loss_mask, strict=True) if mask]
    assert sampled == [token for ids in turns for token in ids]
    for start, ids in zip(recorder.turn_starts, turns, strict=True):
        assert recorder.token_ids[start : start + len(ids)] == ids
        assert recorder.loss_mask[start - 1] == 0
    assert all(p == 0.0 for p, mask in zip(recorder.logprobs, recorder.loss_mask, strict=True) if not mask)


@all_styles
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_content_never_becomes_a_special_token(style: str, data: st.DataObject) -> None:
    form, tok = chat(style), tokenizer(style)
    tokens = [*STYLES[style][1], *STYLES[style][2]]
    text = plain("".join(data.draw(st.lists(st.sampled_from([*tokens, *BORDERS, "x"]), max_size=8))))
    special = {tok.convert_tokens_to_ids(token) for token in tokens}
    assert special.isdisjoint(form.content_ids(text))  # even when nothing was neutralised
    assert tok.decode(form.content_ids(text), clean_up_tokenization_spaces=False) == text
    harmless = neutralise(text, form.special_tokens())
    assert special.isdisjoint(tok.encode(harmless, add_special_tokens=False))  # even with special tokens on
    injected = form.prompt_ids([MESSAGES[0], {"role": "user", "content": text}])
    assert sum(i in special for i in injected) == sum(i in special for i in form.prompt_ids(MESSAGES))


@all_styles
def test_scripted_turn_and_text(style: str) -> None:
    form, tok = chat(style), tokenizer(style)
    call = render_call("search_keyword", {"keywords": ["東京 🎉"]})
    ids = form.turn_ids(call)
    assert ids[-1] == form.end_of_turn_id
    assert form.text(ids) == form.text(ids[:-1]) == call
    assert form.text([*ids, *form.end_of_turn_ids]) == call
    opening = tok.convert_tokens_to_ids("<tool_call>")
    assert (opening == ids[0]) is ("<tool_call>" in STYLES[style][2])


@all_styles
def test_history_in_messages_equals_the_recorded_ids(style: str) -> None:
    form = chat(style)
    call = render_call("read_mail", {"id": "0417"})
    recorded = [*form.prompt_ids(MESSAGES), *form.turn_ids(call), *form.observation_ids("the mail", ended=True)]
    history = [*MESSAGES, {"role": "assistant", "content": call}, {"role": "tool", "content": "the mail"}]
    assert form.prompt_ids(history) == recorded


def test_qwen3_notes_say_what_a_re_render_would_change() -> None:
    assert chat("qwen2.5").notes == ()
    assert chat("llama3").notes == ()
    quiet = ChatFormat(tokenizer("qwen3"), template_kwargs={"enable_thinking": False})
    tok = tokenizer("qwen3")
    assert tok.decode(quiet.prompt_ids(MESSAGES)) == PROMPT["qwen3"] + "<think>\n\n</think>\n\n"
    assert tok.decode(quiet.observation_ids("x", ended=True)).endswith("<think>\n\n</think>\n\n")
    assert any("opens the turn to sample" in note for note in quiet.notes)


def test_a_template_that_drops_thoughts_is_noted() -> None:
    dropping = SMOLLM2.replace("m.content + '<|im_end|>\n'", "m.content.split('</think>')[-1] + '<|im_end|>\n'")
    assert dropping != SMOLLM2
    form = ChatFormat(tokenizer("smollm2", dropping))
    assert any("drops or moves earlier thoughts" in note for note in form.notes)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{%- for m in messages %}{{ m.content + '\n' }}{%- endfor %}", "does not start with a special token"),
        (QWEN25.replace("m.content + '<|im_end|>", "m.role + '<|im_end|>"), "expected each once, in order"),
        (
            "{{ messages | length }}" + QWEN25,
            "rewrites the prompt once turns follow",
        ),
        (
            SMOLLM2.replace("+ m.content +", "+ m.content + (' ' if loop.index == 3 else '') +"),
            "closes an assistant turn differently",
        ),
    ],
)
def test_unusable_templates_are_refused(template: str, message: str) -> None:
    with pytest.raises(ChatFormatError, match=message):
        ChatFormat(tokenizer("qwen2.5", template))


def test_no_template_is_refused() -> None:
    tok = tokenizer("smollm2", SMOLLM2 + " ")
    tok.chat_template = None
    with pytest.raises(ChatFormatError, match="no chat_template"):
        ChatFormat(tok)


def _log(call: str, text: str) -> list[dict[str, str]]:
    return [*MESSAGES, {"role": "assistant", "content": call}, {"role": "tool", "content": text}]


def test_drift_is_none_when_the_model_samples_canonical_ids() -> None:
    form = chat("qwen2.5")
    call = render_call("read_mail", {"id": "0417"})
    ids = [*form.prompt_ids(MESSAGES), *form.turn_ids(call), *form.observation_ids("the mail", ended=True)]
    assert form.explain_drift(ids, _log(call, "the mail")) is None
    assert form.explain_drift(ids[:-5], _log(call, "the mail")) is None


def test_drift_names_turn_and_index_of_an_uncommon_split() -> None:
    form, tok = chat("qwen2.5"), tokenizer("qwen2.5")
    first = form.turn_ids(render_call("read_mail", {"id": "0417"}))
    start = [*form.prompt_ids(MESSAGES), *first, *form.observation_ids("the mail", ended=True)]
    whole = tok.encode("the review", add_special_tokens=False)
    letters = [i for letter in "the review" for i in tok.encode(letter, add_special_tokens=False)]
    assert len(letters) > len(whole)
    log = [
        *_log(render_call("read_mail", {"id": "0417"}), "the mail"),
        {"role": "assistant", "content": "the review"},
    ]
    drift = form.explain_drift([*start, *letters, form.end_of_turn_id], log)
    assert drift is not None
    assert drift.turn == 2
    assert drift.index == len(start)
    assert "t" in drift.recorded
    assert "the" in drift.rendered
    assert "turn 2" in str(drift)


def test_drift_shows_a_dropped_thought() -> None:
    form = chat("qwen3")
    said = "<think>\nhm\n</think>\n\n" + render_call("read_mail", {"id": "0417"})
    ids = [*form.prompt_ids(MESSAGES), *form.turn_ids(said), *form.observation_ids("the mail", ended=True)]
    later = [*_log(said, "the mail"), {"role": "user", "content": "again"}]
    assert form.explain_drift(ids, _log(said, "the mail")) is None
    drift = form.explain_drift(ids, later)
    assert drift is not None
    assert drift.turn == 1
    assert "hm" in drift.recorded
    assert "hm" not in drift.rendered
