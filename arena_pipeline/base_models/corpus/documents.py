"""The pre-training corpus: conversations about generated states.

Three kinds of conversation: questions answered by reading; protocol replies that follow a criterion stated in the
prompt; protocol replies whose content is drawn at random. None of them depends on what is good to do: no policy,
solver, label or reference broadcast of the project is used, and a test holds the imports to that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from arena_pipeline.arena.observation import displayed_actions, legal_actions
from arena_pipeline.arena.prompts import PromptPack, action_prompt, broadcast_prompt
from arena_pipeline.arena.state import BLUE_AGENTS, Action, State
from arena_pipeline.base_models.corpus.criteria import (
    MAX_FACTS,
    random_action_criterion,
    random_fact_criterion,
)
from arena_pipeline.base_models.corpus.questions import Shown, random_question
from arena_pipeline.base_models.corpus.views import random_view
from arena_pipeline.provenance.config_files import Config
from arena_pipeline.provenance.hashing import canonical_json

QUESTION_SYSTEM: Final = "Answer each question about the message."
Message = tuple[str, str]


class CorpusMixture(Config):
    """Shares of the kinds of conversation, how long they are, and the share of compound conditions in criteria."""

    questions: float
    stated_broadcast: float
    stated_action: float
    free_broadcast: float
    free_action: float
    most_questions: int = 12
    most_criteria: int = 4
    compound: float = 0.0

    @property
    def shares(self) -> tuple[float, ...]:
        """The five shares, in the order of the fields."""
        return (self.questions, self.stated_broadcast, self.stated_action, self.free_broadcast, self.free_action)


def documents(seed: int, count: int, pack: PromptPack, mixture: CorpusMixture) -> Iterator[list[Message]]:
    """``count`` conversations of a shard: lists of (role, content), a pure function of the arguments."""
    rng = random.Random(f"arena-corpus-{seed}")
    makers = (_questions, _stated_broadcast, _stated_action, _free_broadcast, _free_action)
    for maker in rng.choices(makers, weights=mixture.shares, k=count):
        yield maker(rng, pack, mixture)


def _questions(rng: random.Random, pack: PromptPack, mixture: CorpusMixture) -> list[Message]:
    state, agent = random_view(rng)
    permutation = rng.randrange(12)
    intents: dict[str, object] = {}
    if rng.random() < 0.5:
        _, user = broadcast_prompt(pack, state, agent, permutation)
    else:
        inbox = _random_inbox(rng, state, agent)
        intents = {sender: broadcast["intent"] for sender, broadcast in inbox.items()}
        _, user = action_prompt(pack, state, agent, permutation, inbox)
    memory = state.knowledge[agent]
    shown = Shown(
        {node: memory[node] for node in sorted(memory)}, displayed_actions(state, agent, permutation), intents
    )
    messages: list[Message] = [("system", QUESTION_SYSTEM)]
    for number in range(rng.randint(4, mixture.most_questions)):
        question, answer = random_question(rng, shown)
        messages += [("user", f"{user}\n{question}" if number == 0 else question), ("assistant", answer)]
    return messages


def _stated_broadcast(rng: random.Random, pack: PromptPack, mixture: CorpusMixture) -> list[Message]:
    state, agent = random_view(rng)
    permutation = rng.randrange(12)
    messages: list[Message] = []
    for number in range(rng.randint(1, mixture.most_criteria)):
        facts, intent = random_fact_criterion(rng, mixture.compound), random_action_criterion(rng, mixture.compound)
        words = f"{intent.words} {facts.words}"
        action = intent.choose(state, agent)
        known = [state.knowledge[agent][node] for node in sorted(state.knowledge[agent])]
        reply = _broadcast([seen.to_dict() for seen in facts.choose(known, action.target)], action, 0)
        if number == 0:
            system, user = broadcast_prompt(replace(pack, team_objective=words), state, agent, permutation)
            messages += [("system", _thinned(rng, system)), ("user", user)]
        else:
            messages.append(("user", words))
        messages.append(("assistant", canonical_json(reply)))
    return messages


def _stated_action(rng: random.Random, pack: PromptPack, mixture: CorpusMixture) -> list[Message]:
    state, agent = random_view(rng)
    permutation = rng.randrange(12)
    displayed = displayed_actions(state, agent, permutation)
    messages: list[Message] = []
    for number in range(rng.randint(1, 2 * mixture.most_criteria)):
        criterion = random_action_criterion(rng, mixture.compound)
        if number == 0:
            objective = replace(pack, team_objective=criterion.words)
            system, user = action_prompt(objective, state, agent, permutation, _random_inbox(rng, state, agent))
            messages += [("system", _thinned(rng, system)), ("user", user)]
        else:
            messages.append(("user", criterion.words))
        messages.append(("assistant", _action_reply(displayed.index(criterion.choose(state, agent)))))
    return messages


def _free_broadcast(rng: random.Random, pack: PromptPack, mixture: CorpusMixture) -> list[Message]:
    state, agent = random_view(rng)
    system, user = broadcast_prompt(pack, state, agent, rng.randrange(12))
    reply = canonical_json(_random_broadcast(rng, state, agent))
    return [("system", _thinned(rng, system)), ("user", user), ("assistant", reply)]


def _free_action(rng: random.Random, pack: PromptPack, mixture: CorpusMixture) -> list[Message]:
    state, agent = random_view(rng)
    permutation = rng.randrange(12)
    system, user = action_prompt(pack, state, agent, permutation, _random_inbox(rng, state, agent))
    reply = _action_reply(rng.randrange(len(legal_actions(state, agent))))
    return [("system", _thinned(rng, system)), ("user", user), ("assistant", reply)]


def _random_inbox(rng: random.Random, state: State, agent: str) -> dict[str, dict[str, Any]]:
    """A broadcast with random content from each teammate; a quarter of the inboxes are silent."""
    silent = rng.random() < 0.25
    return {
        sender: _broadcast([], None, 0) if silent else _random_broadcast(rng, state, sender)
        for sender in BLUE_AGENTS
        if sender != agent
    }


def _random_broadcast(rng: random.Random, state: State, sender: str) -> dict[str, Any]:
    memory = state.knowledge[sender]
    nodes = rng.sample(list(memory), rng.randint(0, min(MAX_FACTS, len(memory))))
    intent = None if rng.random() < 0.15 else rng.choice(legal_actions(state, sender))
    return _broadcast([memory[node].to_dict() for node in nodes], intent, int(rng.random() < 0.1))


def _broadcast(facts: list[dict[str, Any]], intent: Action | None, request: int) -> dict[str, Any]:
    return {"facts": facts, "intent": intent.to_dict() if intent else None, "request_resource": request}


def _action_reply(position: int) -> str:
    return canonical_json({"action_id": f"A{position}"})


def _thinned(rng: random.Random, system: str) -> str:
    """The system text, one time in five with sentences left out, so that no reply hangs on its exact wording."""
    if rng.random() < 0.8:
        return system
    return ". ".join(sentence for sentence in system.split(". ") if rng.random() < 0.7)
