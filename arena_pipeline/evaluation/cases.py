"""A manifest's cases, solved: the state, RED's moves, BLUE's exact optimum, and the grid all rewards lie on.

Source: evaluation specification, "Frozen-arena evaluation of a model"; arena-core-v1, "Exact solver".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from arena_pipeline.arena.generation import generate_state
from arena_pipeline.arena.manifests import MANIFESTS, Case
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.protocol import oracle_broadcast
from arena_pipeline.arena.solver import Solution, solve
from arena_pipeline.arena.state import BLUE_AGENTS, Action, State
from arena_pipeline.errors import ConfigError, EvaluationError

OPTIMAL_TOLERANCE: Final = 1e-9

_STEPS_PER_POINT: Final = 20
_GRID_NOISE: Final = 1e-6
_SOLVED_CASES_KEPT: Final = 2048


def manifest_cases(name: str) -> tuple[Case, ...]:
    """The cases of a manifest, or with ``NAME:N`` its first N, which are another manifest with another hash.

    Raises ``ConfigError`` for an unknown name, or an N that is not within the manifest.
    """
    known, colon, limit = name.partition(":")
    if known not in MANIFESTS:
        raise ConfigError(f"manifest {name!r}: allowed are {', '.join(MANIFESTS)}, and NAME:N for the first N cases")
    cases = MANIFESTS[known]
    if not colon:
        return cases
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit) <= len(cases)):
        raise ConfigError(f"manifest {name!r}: the number after the colon must be within 1..{len(cases)}")
    return cases[: int(limit)]


@dataclass(frozen=True, slots=True)
class SolvedCase:
    """One case, RED's moves (its sequential heuristic in the case's style) and BLUE's exact solution against them."""

    case: Case
    state: State
    red_actions: Mapping[str, Action]
    solution: Solution

    def reference_broadcasts(self) -> dict[str, dict[str, Any]]:
        """Each BLUE agent's oracle broadcast of its action in the canonical optimum."""
        return {agent: oracle_broadcast(self.state, agent, self.solution.canonical[agent]) for agent in BLUE_AGENTS}


@lru_cache(maxsize=_SOLVED_CASES_KEPT)
def solved_case(case: Case) -> SolvedCase:
    """Solve a case; solved once per process, because planning, scripts and scoring all need it."""
    state = generate_state(case.seed, case.size)
    red_actions = scripted_policy("sequential_heuristic", state, "RED", case.style)
    return SolvedCase(case, state, red_actions, solve(state, "BLUE", red_actions))


def shuffled_source(cases: Sequence[Case], index: int) -> SolvedCase:
    """The case whose reference broadcasts the shuffled condition plays in case ``index``.

    It is the next case of the manifest, cyclically, solved against RED in the style of case ``index``.
    """
    following = cases[(index + 1) % len(cases)]
    return solved_case(Case(following.seed, following.size, cases[index].style))


def reward_difference(left: float, right: float) -> float:
    """left - right, put on the 0.05 grid on which every reward lies, so that rounding noise is never an effect.

    Raises ``EvaluationError`` for a difference that is off the grid by more than noise: it is not of rewards.
    """
    steps = (left - right) * _STEPS_PER_POINT
    nearest = round(steps)
    if abs(steps - nearest) > _GRID_NOISE:
        raise EvaluationError(
            f"difference of {left!r} and {right!r}: not a multiple of 0.05, as every reward difference is"
        )
    return nearest / _STEPS_PER_POINT
