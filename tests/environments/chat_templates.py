"""Small chat templates in the styles of common models, written for these tests, and tokenizers to carry them."""

from __future__ import annotations

from functools import cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

QWEN25 = (
    "{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are a test model.<|im_end|>\n' }}{%- endif %}"
    "{%- for m in messages %}"
    "{%- if m.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{%- endif %}"
    "{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{%- endif %}"
    "{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
# Drops the thoughts of every assistant turn before the last user query, and gives the last one an empty thought.
QWEN3 = (
    "{%- set ns = namespace(query=-1) %}"
    "{%- for m in messages %}{%- if m.role == 'user' and not (m.content.startswith('<tool_response>') "
    "and m.content.endswith('</tool_response>')) %}{%- set ns.query = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}"
    "{%- if m.role == 'assistant' %}"
    "{%- set said = m.content.split('</think>')[-1].lstrip('\n') %}"
    "{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n') if '</think>' in m.content "
    "else '' %}"
    "{{ '<|im_start|>assistant\n' }}"
    "{%- if loop.index0 > ns.query and (loop.last or thought) %}{{ '<think>\n' + thought + '\n</think>\n\n' }}"
    "{%- endif %}"
    "{{ said + '<|im_end|>\n' }}"
    "{%- elif m.role == 'tool' %}"
    "{{ '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}"
    "{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)
LLAMA3 = (
    "{{ bos_token }}"
    "{%- for m in messages %}"
    "{%- set role = 'ipython' if m.role == 'tool' else m.role %}"
    "{{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}"
    "{{ m.content | tojson if m.role == 'tool' else m.content | trim }}{{ '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
SMOLLM2 = (
    "{%- for m in messages %}"
    "{%- if loop.first and m.role != 'system' %}{{ '<|im_start|>system\nYou are a test model.<|im_end|>\n' }}"
    "{%- endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
# No system role, no tool role, strict alternation.
GEMMA = (
    "{{ bos_token }}"
    "{%- for m in messages %}"
    "{%- if m.role not in ('user', 'assistant') %}{{ raise_exception('no role ' + m.role) }}{%- endif %}"
    "{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{%- endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' + m.content + '<end_of_turn>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{%- endif %}"
)

_CORPUS = (
    "the review of Amber Falcon is in room 12 on Monday at 14:00\n\n",
    "<think>\nI search for it\n</think>\n\n",
    '{"name": "search_keyword", "arguments": {"keywords": ["Amber Falcon"]}}\n',
    "東京の会議は月曜日です。ありがとうございます。 🎉🎉 naïve café\n",
    "user assistant system ipython model tool   two  spaces\t\ttabs\n\n\n",
)
_WORDS = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

_CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
# name -> template, special tokens, added tokens that are not special, bos, eos
STYLES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], str | None, str]] = {
    "qwen2.5": (QWEN25, _CHATML, _TAGS[:2], None, "<|im_end|>"),
    "qwen3": (QWEN3, _CHATML, _TAGS, None, "<|im_end|>"),
    "llama3": (
        LLAMA3,
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>"),
        (),
        "<|begin_of_text|>",
        "<|end_of_text|>",
    ),
    "smollm2": (SMOLLM2, _CHATML, (), "<|im_start|>", "<|im_end|>"),
    "gemma": (GEMMA, ("<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>"), (), "<bos>", "<eos>"),
}


@cache
def tokenizer(style: str, template: str | None = None) -> PreTrainedTokenizerFast:
    own, special, plain, bos, eos = STYLES[style]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(_WORDS, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    core.train_from_iterator(_CORPUS * 3, trainer)
    core.add_special_tokens(list(special))
    core.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in plain])
    fast = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=eos, bos_token=bos)
    fast.chat_template = template or own
    return fast
