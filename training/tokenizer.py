"""A small byte-level BPE tokenizer with a ChatML template, for models trained from scratch.

Copying is what a small search agent must do first, so ids, numbers and amounts are cut into groups of two digits that
look the same wherever they stand, and a name is one token whether it opens a JSON string or follows a blank.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

# The JSON scaffold of a call is one piece, so choosing a tool is one token. A word keeps its leading blank, digits go
# in pairs without one, other signs run together.
PIECES = "|".join(
    (
        r'\{"name": "\w+", "arguments": \{"\w+": \[?"',
        r'\??"\]?, "\w+": \[?"',
        r'"\]?\}\}',
        r'", "',
        r" ?\p{L}+",
        r"\p{N}{1,2}",
        r" ?[^\s\p{L}\p{N}]+",
        r"\s",
    )
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PROTOCOL = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
CHATML = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'tool' -%}"
    "{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' -}}"
    "{%- else -%}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Deterministic for the same texts in the same order."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [  # pyright: ignore[reportAttributeAccessIssue]
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(PROTOCOL),
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in PROTOCOL])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHATML
    return fast
