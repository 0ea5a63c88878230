"""The oracle and the scripted policies as providers: they answer prompts in text, and are parsed like a model.

A script knows the case behind a request, so it knows the whole state, but it can only speak: its action is named by the
id that the prompt's own text shows for it.

Source: evaluation specification, "Frozen-arena evaluation of a model".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from arena_pipeline.arena.manifests import Case
from arena_pipeline.arena.policies import SCRIPTED_POLICIES, scripted_policy
from arena_pipeline.arena.prompts import displayed_from_user
from arena_pipeline.arena.protocol import encode_broadcast, oracle_broadcast
from arena_pipeline.arena.state import Action
from arena_pipeline.errors import ConfigError, EvaluationError
from arena_pipeline.evaluation.cases import solved_case
from arena_pipeline.provenance.hashing import canonical_json
from arena_pipeline.serving.requests import Completion, Request

ORACLE: Final = "oracle"
SCRIPT_NAMES: Final = (ORACLE, *SCRIPTED_POLICIES)


class ScriptedProvider:
    """Plays ``oracle`` (each case's canonical optimum) or one of the scripted policies, style balanced.

    Raises ``ConfigError`` for another name.
    """

    reads_case: Final = True
    lanes: Final = 1

    def __init__(self, name: str) -> None:
        if name not in SCRIPT_NAMES:
            raise ConfigError(f"script {name!r}: allowed are {', '.join(SCRIPT_NAMES)}")
        self.name = name

    @property
    def identity(self) -> dict[str, Any]:
        """A script has no weights, template or decoding: its name is all that decides its replies."""
        return {"kind": "scripted", "name": self.name, "base_sha256": None, "adapter_sha256": None}

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer each request from its case; ``EvaluationError`` for a request that has none."""
        return [Completion(self._reply(request), "stop") for request in requests]

    def _reply(self, request: Request) -> str:
        if not isinstance(request.case, Case):
            raise EvaluationError(
                f"{request.key}: a script answers requests of an evaluation case, and this one has none"
            )
        action = self._actions(request.case)[request.agent_id]
        if request.phase == "BROADCAST":
            state = solved_case(request.case).state
            return encode_broadcast(oracle_broadcast(state, request.agent_id, action))
        return canonical_json({"action_id": _displayed_id(request, action)})

    def _actions(self, case: Case) -> Mapping[str, Action]:
        solved = solved_case(case)
        return solved.solution.canonical if self.name == ORACLE else scripted_policy(self.name, solved.state, "BLUE")


def _displayed_id(request: Request, action: Action) -> str:
    """The id under which the request's user message shows an action."""
    for shown in displayed_from_user(request.prompt.user):
        identifier = str(shown.pop("id"))
        if shown == action.to_dict():
            return identifier
    raise EvaluationError(f"{request.key}: the prompt does not show the action {action.to_dict()!r}")
