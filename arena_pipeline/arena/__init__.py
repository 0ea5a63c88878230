"""The environment `arena-core-v1`: states, rules, policies, the exact solver and the protocol's texts."""

from __future__ import annotations

from arena_pipeline.arena.generation import generate_mechanics_state, generate_state
from arena_pipeline.arena.observation import displayed_actions, legal_actions, observe
from arena_pipeline.arena.parser import Verdict, parse_action, parse_broadcast
from arena_pipeline.arena.policies import (
    SCRIPTED_POLICIES,
    STYLES,
    local_priority,
    random_legal_policy,
    scripted_policy,
)
from arena_pipeline.arena.protocol import encode_action, encode_broadcast, oracle_broadcast
from arena_pipeline.arena.rules import Event, StepResult, redundant_agents, step, team_value
from arena_pipeline.arena.solver import Solution, solve
from arena_pipeline.arena.state import (
    ARENA_VERSION,
    BLUE_AGENTS,
    RED_AGENTS,
    WAIT,
    Action,
    Agent,
    Node,
    Observation,
    State,
    action_from_dict,
    state_digest,
    state_to_dict,
)

__all__ = [
    "ARENA_VERSION",
    "BLUE_AGENTS",
    "RED_AGENTS",
    "SCRIPTED_POLICIES",
    "STYLES",
    "WAIT",
    "Action",
    "Agent",
    "Event",
    "Node",
    "Observation",
    "Solution",
    "State",
    "StepResult",
    "Verdict",
    "action_from_dict",
    "displayed_actions",
    "encode_action",
    "encode_broadcast",
    "generate_mechanics_state",
    "generate_state",
    "legal_actions",
    "local_priority",
    "observe",
    "oracle_broadcast",
    "parse_action",
    "parse_broadcast",
    "random_legal_policy",
    "redundant_agents",
    "scripted_policy",
    "solve",
    "state_digest",
    "state_to_dict",
    "step",
    "team_value",
]
