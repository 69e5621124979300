"""Outputs of the two roles that do not mirror each other: here to show what that costs, and for nothing else.

With ``env.outputs: apart`` the Solver ends an episode with ``finish``, ``sources`` before ``final``, where the Proposer
goes on to ``submit`` a ``question``, an ``answer`` and its ``evidence``. No prompt describes it: the policy learns it
from the SFT experts, as it learns the mirrored form.
"""

from __future__ import annotations

from typing import Literal

from environments.protocol import SUBMIT, Action, Malformed, ToolCall, parse, render_call
from environments.task import Role

Outputs = Literal["mirrored", "apart"]
FINISH = "finish"
_NAMES = {"sources": "evidence", "final": "answer"}


def heard(action: Action, role: Role, outputs: Outputs) -> Action:
    """What a role said, as the episode knows it: a Solver's ``finish`` is its ``submit``, and only that."""
    if outputs == "mirrored" or role is not Role.SOLVER or not isinstance(action, ToolCall):
        return action
    if action.name == SUBMIT:
        return Malformed(f"the Solver hands in by {FINISH}, with {' and '.join(_NAMES)}", action.thought)
    if action.name != FINISH:
        return action
    arguments = {_NAMES.get(name, f"{name}?"): value for name, value in action.arguments.items()}
    return ToolCall(SUBMIT, arguments, action.thought, action.trailing)


def spoken(text: str, role: Role, outputs: Outputs) -> str:
    """A turn that submits in the mirrored form, as this role has to write it; any other turn as it is."""
    if outputs == "mirrored" or role is not Role.SOLVER:
        return text
    action = parse(text)
    if not isinstance(action, ToolCall) or action.name != SUBMIT:
        return text
    return render_call(FINISH, {name: action.arguments[known] for name, known in _NAMES.items()})
