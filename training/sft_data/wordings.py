"""The thoughts of scripts and of scenario templates: a few wordings of each, in each language. A language is a table.

``{a}`` is what a search is about, ``{b}`` what is wanted of it, ``{id}`` and ``{other}`` are mails, ``{answer}`` is the
answer, ``{n}`` a number of hits.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

Wordings = Mapping[str, tuple[str, ...]]

ENGLISH: Wordings = {
    "start": ("I look for the {b} of {a}.", "First I need the {b} of {a}.", "The mails should tell the {b} of {a}."),
    "next": ("That leads to {a}. Now its {b}.", "So it is about {a}; I go on to the {b}.", "Next is the {b} of {a}."),
    "alone": ("I search for {a}.", "What do the mails say about {a}?"),
    "open": ("Mail {id} looks right. I open it.", "I read mail {id}.", "Mail {id} should say it."),
    "seed": ("I begin with mail {id}.", "The seed is mail {id}; I read it."),
    "answer": ("It is {answer}.", "The mails say {answer}.", "I have it: {answer}."),
    "ask": ("This makes a question; the answer is {answer}.", "The mails prove {answer}, so I ask for it."),
    "first_plan": ("I try {a} first.", "Perhaps {a} alone is enough."),
    "plan_fails": (
        "These mails do not help. I change the plan: {a} with {b}.",
        "That did not work. I search for {a} and {b} instead.",
    ),
    "refine": (
        "{n} mails come up. I ask more exactly, for {a} with {b} in the subject.",
        "Too wide. A bool query keeps only {a} with {b} in the subject.",
    ),
    "refined": ("Now mail {id} is left over.", "The narrower search leads to mail {id}."),
    "candidate": (
        "Mails {other} and {id} could both be meant. I read {other} first.",
        "Two candidates, {other} and {id}. First {other}.",
    ),
    "other_candidate": (
        "Mail {other} does not settle it. I compare it with mail {id}.",
        "It is not mail {other}. Now mail {id}.",
    ),
    "check": (
        "It seems to be {answer}. I check that before I answer.",
        "Before I hand in {answer} I look it up again.",
    ),
    "checked": ("Mail {id} comes up again: {answer} it is.", "Confirmed by mail {id}: {answer}."),
    "missing": (
        "Known so far: mail {id}. Still missing: the {b} of {a}.",
        "Mail {id} tells a part. What I do not know yet is the {b} of {a}.",
    ),
}
JAPANESE: Wordings = {
    "start": ("{a}の{b}を調べる。", "まず{a}の{b}が必要だ。", "{a}の{b}はメールにあるはずだ。"),
    "next": ("{a}につながる。次は{b}だ。", "つまり{a}の話だ。{b}に進む。", "次に{a}の{b}を調べる。"),
    "alone": ("{a}を検索する。", "{a}についてのメールを探す。"),
    "open": ("メール{id}がよさそうだ。開いてみる。", "メール{id}を読む。", "メール{id}に書いてあるはずだ。"),
    "seed": ("メール{id}から始める。", "出発点のメール{id}を読む。"),
    "answer": ("答えは{answer}だ。", "メールによると{answer}だ。", "わかった。{answer}だ。"),
    "ask": ("これで質問が作れる。答えは{answer}だ。", "メールから{answer}と確かめられるので、これを問う。"),
    "first_plan": ("まず{a}だけで探してみる。", "{a}だけで足りるかもしれない。"),
    "plan_fails": (
        "これらのメールは役に立たない。方針を変え、{a}と{b}で探す。",
        "うまくいかない。{a}と{b}で探し直す。",
    ),
    "refine": (
        "{n}件ある。件名に{b}を含む{a}のメールに絞る。",
        "広すぎる。ブール検索で件名に{b}がある{a}のメールだけにする。",
    ),
    "refined": ("メール{id}が残った。", "絞った検索でメール{id}に着いた。"),
    "candidate": (
        "メール{other}と{id}のどちらかだ。先に{other}を読む。",
        "候補は{other}と{id}の二つ。まず{other}を見る。",
    ),
    "other_candidate": (
        "メール{other}では決まらない。メール{id}と比べる。",
        "メール{other}ではない。次はメール{id}だ。",
    ),
    "check": ("{answer}のようだ。答える前に確かめる。", "{answer}を提出する前にもう一度調べる。"),
    "checked": ("メール{id}がまた出てきた。{answer}で間違いない。", "メール{id}で確認できた。{answer}だ。"),
    "missing": (
        "わかったのはメール{id}まで。まだ足りないのは{a}の{b}だ。",
        "メール{id}は一部だけだ。{a}の{b}がまだわからない。",
    ),
}
LANGUAGES: Mapping[str, Wordings] = {"en": ENGLISH, "ja": JAPANESE}


def said(language: str, key: str, rng: random.Random, **slots: str) -> str:
    """One wording, drawn. Raises KeyError for a language or a key that has none."""
    return rng.choice(LANGUAGES[language][key]).format(**slots)


def known_language(label: str) -> str:
    """The table for rows of this language label; English where there is none."""
    return label if label in LANGUAGES else "en"
