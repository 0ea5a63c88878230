"""What simple policies reach on a manifest, played directly: the figures that every model is set beside.

Source: arena-core-v1, "Frozen evaluation manifest", the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from arena_pipeline.arena.manifests import manifest_sha256
from arena_pipeline.arena.policies import SCRIPTED_POLICIES, random_legal_policy, scripted_policy
from arena_pipeline.arena.rules import step
from arena_pipeline.arena.state import Action
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.cases import (
    OPTIMAL_TOLERANCE,
    SolvedCase,
    manifest_cases,
    reward_difference,
    solved_case,
)
from arena_pipeline.evaluation.statistics import mean
from arena_pipeline.progress import Progress, silent

RANDOM_REPEATS: Final = 32
ORACLE_POLICY: Final = "exact_solver"
RANDOM_POLICY: Final = "random_legal"
BASELINE_POLICIES: Final = (ORACLE_POLICY, *reversed(SCRIPTED_POLICIES[1:]), RANDOM_POLICY, SCRIPTED_POLICIES[0])


def baselines(manifest: str, *, random_repeats: int = RANDOM_REPEATS, progress: Progress = silent) -> dict[str, Any]:
    """Play every baseline on every case of a manifest, named as ``manifest_cases`` takes it.

    Returns ``manifest``, ``manifest_sha256``, ``cases`` (their number), ``random_repeats`` and ``policies``: a list,
    best known first, of ``policy``, ``mean_reward``, ``mean_oracle_regret``, ``optimal_rate`` (share of cases) and
    ``rewards`` (one per case). random_legal's figures of a case are means over its repeats.
    """
    if random_repeats < 1:
        raise EvaluationError(f"random_repeats {random_repeats}: at least 1 is needed")
    cases = manifest_cases(manifest)
    played: dict[str, list[list[float]]] = {policy: [] for policy in BASELINE_POLICIES}
    optima: list[float] = []
    for done, case in enumerate(cases):
        progress("baselines", done, len(cases))
        solved = solved_case(case)
        optima.append(solved.solution.reward)
        for policy, choices in _choices(solved, random_repeats).items():
            played[policy].append([_reward(solved, choose()) for choose in choices])
    progress("baselines", len(cases), len(cases))
    return {
        "manifest": manifest,
        "manifest_sha256": manifest_sha256(cases),
        "cases": len(cases),
        "random_repeats": random_repeats,
        "policies": [_figures(policy, played[policy], optima) for policy in BASELINE_POLICIES],
    }


def _choices(solved: SolvedCase, random_repeats: int) -> dict[str, list[Callable[[], Mapping[str, Action]]]]:
    """For each policy, one way to choose BLUE's actions per repeat."""

    def scripted(name: str) -> Callable[[], Mapping[str, Action]]:
        return lambda: scripted_policy(name, solved.state, "BLUE")

    def random_legal(repeat: int) -> Callable[[], Mapping[str, Action]]:
        return lambda: random_legal_policy(solved.state, solved.case.seed, repeat)

    return {
        ORACLE_POLICY: [lambda: solved.solution.canonical],
        RANDOM_POLICY: [random_legal(repeat) for repeat in range(random_repeats)],
        **{name: [scripted(name)] for name in SCRIPTED_POLICIES},
    }


def _reward(solved: SolvedCase, blue: Mapping[str, Action]) -> float:
    return step(solved.state, {**solved.red_actions, **blue}).rewards["BLUE"]


def _figures(policy: str, played: Sequence[Sequence[float]], optima: Sequence[float]) -> dict[str, Any]:
    regrets = [
        mean([reward_difference(optimum, reward) for reward in rewards])
        for optimum, rewards in zip(optima, played, strict=True)
    ]
    rewards = [mean(case_rewards) for case_rewards in played]
    return {
        "policy": policy,
        "mean_reward": mean(rewards),
        "mean_oracle_regret": mean(regrets),
        "optimal_rate": sum(regret <= OPTIMAL_TOLERANCE for regret in regrets) / len(regrets),
        "rewards": rewards,
    }
