"""Choices by a criterion that is drawn at random and stated in the prompt.

A criterion is an ordered list of clauses. It comes from the random generator alone: no policy, solver or label of the
project is consulted, and the prompt says in words what decides, so that following it is reading comprehension.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from arena_pipeline.arena.observation import legal_actions
from arena_pipeline.arena.state import ACTION_KINDS, OWNERS, STATUSES, WAIT, Action, Observation, State

MAX_FACTS: Final = 3


@dataclass(frozen=True)
class Clause:
    """A condition on an observation and the words that state it; no words means that it always holds."""

    words: str
    holds: Callable[[Observation], bool]


def random_clause(rng: random.Random, compound: float) -> Clause:
    """A condition on one field, or, with probability ``compound``, a negated one or either of two."""
    if compound and rng.random() < compound:
        first = _simple_clause(rng)
        if rng.random() < 0.4:
            return Clause(f"not {first.words}", lambda seen: not first.holds(seen))
        second = _simple_clause(rng)
        return Clause(f"{first.words} or {second.words}", lambda seen: first.holds(seen) or second.holds(seen))
    return _simple_clause(rng)


def _simple_clause(rng: random.Random) -> Clause:
    field = rng.choice(("status", "status", "owner", "critical", "value"))
    if field == "status":
        status = rng.choice(STATUSES)
        return Clause(status, lambda seen: seen.status == status)
    if field == "owner":
        owner = rng.choice(OWNERS)
        return Clause(owner, lambda seen: seen.owner == owner)
    if field == "value":
        value = rng.randint(1, 3)
        return Clause(f"value {value}", lambda seen: seen.value == value)
    return Clause("critical", lambda seen: seen.critical)


ANY: Final = Clause("", lambda seen: True)


@dataclass(frozen=True)
class ActionCriterion:
    """Take the first kind that is legal where its clause holds; among several, decide by value, then by name."""

    clauses: tuple[tuple[str, Clause], ...]
    high_value: bool
    greater_name: bool

    @property
    def words(self) -> str:
        """The criterion as the prompt states it."""
        listed = ", ".join(f"{kind} {clause.words}".rstrip() for kind, clause in self.clauses)
        return f"TAKE {listed}; {_size(self.high_value)} value; {_name(self.greater_name)} name."

    def choose(self, state: State, agent_id: str) -> Action:
        """The action that the criterion names, WAIT if no clause applies."""
        memory = state.knowledge[agent_id]
        actions = legal_actions(state, agent_id)
        for kind, clause in self.clauses:
            fitting = [
                action for action in actions if action.kind == kind and _holds(clause, memory.get(action.target or ""))
            ]
            if fitting:
                return self._preferred(fitting, memory)
        return WAIT

    def _preferred(self, actions: Sequence[Action], memory: Mapping[str, Observation]) -> Action:
        def value(action: Action) -> int:
            seen = memory.get(action.target or "")
            return (seen.value if seen else 0) * (1 if self.high_value else -1)

        best = max(value(action) for action in actions)
        tied = sorted((action for action in actions if value(action) == best), key=lambda action: action.target or "")
        return tied[-1 if self.greater_name else 0]


def random_action_criterion(rng: random.Random, compound: float) -> ActionCriterion:
    """Two to six clauses over distinct (kind, condition) pairs."""
    kinds = [kind for kind in ACTION_KINDS if kind != "WAIT"]
    rng.shuffle(kinds)
    clauses: list[tuple[str, Clause]] = []
    for kind in kinds[: rng.randint(2, 5)]:
        if kind in ("SCAN", "TRANSFER") or rng.random() < 0.5:
            clauses.append((kind, ANY))
        else:
            clauses.append((kind, random_clause(rng, compound)))
            if rng.random() < 0.3:
                clauses.append((kind, ANY))
    if rng.random() < 0.3:
        rng.shuffle(clauses)
    return ActionCriterion(tuple(clauses), rng.random() < 0.7, rng.random() < 0.7)


@dataclass(frozen=True)
class FactCriterion:
    """Report the nodes that satisfy a clause, in clause order, then by name; optionally the intent's target first."""

    target_first: bool
    clauses: tuple[Clause, ...]
    greater_name: bool
    limit: int

    @property
    def words(self) -> str:
        """The criterion as the prompt states it."""
        listed = ", ".join((["target"] if self.target_first else []) + [clause.words for clause in self.clauses])
        return f"REPORT {listed}; {_name(self.greater_name)} name; {self.limit} at most."

    def choose(self, known: Sequence[Observation], target: str | None) -> list[Observation]:
        """The observations to report, in order."""
        ranked: list[tuple[int, str, Observation]] = []
        for seen in known:
            if self.target_first and seen.node == target:
                ranked.append((-1, seen.node, seen))
                continue
            for rank, clause in enumerate(self.clauses):
                if clause.holds(seen):
                    ranked.append((rank, seen.node, seen))
                    break
        ranked.sort(key=lambda entry: entry[1], reverse=self.greater_name)
        ranked.sort(key=lambda entry: entry[0])
        return [seen for _, _, seen in ranked[: self.limit]]


def random_fact_criterion(rng: random.Random, compound: float) -> FactCriterion:
    """One to three clauses, half of the time after the intent's target."""
    clauses = tuple(random_clause(rng, compound) for _ in range(rng.randint(1, 3)))
    return FactCriterion(rng.random() < 0.5, clauses, rng.random() < 0.7, rng.choice((1, 2, 3, 3, 3)))


def _holds(clause: Clause, seen: Observation | None) -> bool:
    """A condition does not restrict an action whose target was never observed: there is nothing to read."""
    return seen is None or clause.holds(seen)


def _size(high: bool) -> str:
    return "high" if high else "low"


def _name(greater: bool) -> str:
    return "greater" if greater else "smaller"
