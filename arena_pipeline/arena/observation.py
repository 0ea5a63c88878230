"""What an agent sees and which actions it may take, both from its own knowledge (arena-core-v1)."""

from __future__ import annotations

from typing import Any

from arena_pipeline.arena.state import MAX_RESOURCE, WAIT, Action, Agent, State


def adjacent_teammates(state: State, agent_id: str) -> list[Agent]:
    """Teammates standing on a neighbouring node, sorted by id."""
    agent = state.agents[agent_id]
    neighbors = state.nodes[agent.position].neighbors
    return sorted(
        (other for other in state.agents.values() if other.team == agent.team and other.position in neighbors),
        key=lambda other: other.id,
    )


def observe(state: State, agent_id: str) -> dict[str, Any]:
    """The agent's observation as its prompt holds it ("What an agent sees")."""
    memory = state.knowledge[agent_id]
    agent = state.agents[agent_id]
    return {
        "turn": state.turn,
        "self": agent.to_dict(),
        "known_nodes": [memory[node].to_dict() for node in sorted(memory)],
        "adjacent_teammates": [
            {"id": other.id, "position": other.position, "resource": other.resource}
            for other in adjacent_teammates(state, agent_id)
        ],
        "unknown_neighbors": [node for node in state.nodes[agent.position].neighbors if node not in memory],
    }


def legal_actions(state: State, agent_id: str) -> tuple[Action, ...]:
    """The agent's legal actions, sorted ("Legal actions"): from its own knowledge, never from hidden state."""
    agent = state.agents[agent_id]
    memory = state.knowledge[agent_id]
    funded = agent.resource >= 1
    actions = [WAIT]
    for node_id in (agent.position, *state.nodes[agent.position].neighbors):
        seen = memory.get(node_id)
        if seen is None:
            actions.append(Action("SCAN", node_id))
        elif not funded:
            continue
        elif seen.owner != agent.team:
            if node_id != agent.position:
                actions += [Action("PROBE", node_id), Action("CAPTURE", node_id)]
        elif seen.status == "COMPROMISED":
            actions.append(Action("RECOVER", node_id))
        elif seen.status != "FORTIFIED":
            actions.append(Action("FORTIFY", node_id))
    if funded:
        for other in adjacent_teammates(state, agent_id):
            if other.resource < MAX_RESOURCE:
                actions.append(Action("TRANSFER", other.id, 1))
    return tuple(sorted(actions, key=lambda action: action.sort_key))


def displayed_actions(state: State, agent_id: str, permutation: int) -> tuple[Action, ...]:
    """The legal actions in display order: rotated left by ``permutation`` mod n; position k is shown as ``A<k>``."""
    actions = legal_actions(state, agent_id)
    shift = permutation % len(actions)
    return actions[shift:] + actions[:shift]
