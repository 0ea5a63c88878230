"""The exhaustive search over one team's joint actions, compiled, on small integer tables.

Why this equals the rules. A team's reward is a sum of terms: the worth of each node, the resource potential of each
agent, and a bonus for each scan. Within one turn a node's fate depends only on the moves aimed at it, and an agent's
potential only on its own move, the fates of the nodes it may look at, and transfers from or to it. So a term depends on
the choices of a few agents, its *scope* (``_scopes``). Terms are evaluated over the product of their scope's choices
alone (``_tabulate``), and the reward of every joint action is the sum of its entries in these tables (``_add_table``).

Rewards are integers in twentieths (every weight of arena-core-v1 is a multiple of 0.05), so ties are exact; only the
first optimum's reward is computed in floating point, each addition in the specification's order (``_float_value``).

The compiled code is cached on disk by this file's contents alone, so it takes no constant from another module.
MINE is the searching team, agents 0..3, THEIRS its opponent, agents 4..7. A scope is a set of agents 0..3 as bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

NEUTRAL, MINE, THEIRS = range(3)
# The kinds from FORTIFY on are aimed at a node, change it and cost one unit of resource.
WAIT, SCAN, TRANSFER, FORTIFY, RECOVER, PROBE, CAPTURE = range(7)

# Columns of the node table. As given: the node, then for each agent 0 if the node is unknown to it, else 1 + the
# opportunity it remembers, then for each node 1 if one can be seen from the other, being it or its neighbour. Filled
# in: the moves aimed at the node by each side, and what follows from them (``_settle``): its worth to MINE in
# twentieths, its opportunity as each side sees it, and the side that captures it.
OWNER, VALUE, CRITICAL, FORTIFICATION, EXPOSED, COMPROMISED = range(6)
_MY_ORDERS, _THEIR_ORDERS, _WORTH, _MY_OPPORTUNITY, _THEIR_OPPORTUNITY, _TAKER = range(6, 12)
REMEMBERED: Final = 12
VISIBLE: Final = 20
# Columns of the agent table. As given: position and resource. Filled in: the agent's move, its resource after the turn,
# and what it knows after the turn if it stays: the best opportunity out of its sight, and the known nodes in its sight.
POSITION, RESOURCE, _KIND, _TARGET, _LEFT, _OUT_OF_SIGHT, _IN_SIGHT, AGENT_COLUMNS = range(8)

_TEAM_SIZE, _ALL, _EVERYONE = 4, 8, 0b1111
_MAX_RESOURCE, _MAX_FORTIFICATION, _SCAN_BONUS = 4, 2, 2


def _compiled(function: _Function) -> _Function:
    return njit(function)


def _compiled_and_cached(function: _Function) -> _Function:
    """Compile, and cache the result on disk if numba finds a directory it may write."""
    try:
        return njit(cache=True)(function)
    except RuntimeError:
        return njit(function)


@_compiled
def _order(kind: int) -> int:
    """A move as a summand of its target's orders: three bits per kind hold up to four agents of one team."""
    return 1 << (3 * (kind - FORTIFY))


@_compiled
def _ordered(orders: int, kind: int) -> int:
    """How many agents of one team aim ``kind`` at the node."""
    return (orders >> (3 * (kind - FORTIFY))) & 7


@_compiled
def _fate(nodes: Integers, k: int) -> tuple[int, int, int, int, int]:
    """(owner, fortification, exposed, compromised, capturing side) of node k after both sides' orders."""
    owner, fortification = nodes[k, OWNER], nodes[k, FORTIFICATION]
    exposed, compromised = nodes[k, EXPOSED], nodes[k, COMPROMISED]
    mine, theirs = nodes[k, _MY_ORDERS], nodes[k, _THEIR_ORDERS]
    taker = NEUTRAL
    if _ordered(mine, RECOVER) + _ordered(theirs, RECOVER) > 0:
        exposed = compromised = 0
    raised = _ordered(mine, FORTIFY) + _ordered(theirs, FORTIFY)
    if raised > 0:
        fortification = min(_MAX_FORTIFICATION, fortification + raised)
        exposed = 0
    probes = _ordered(mine, PROBE) if owner != MINE else 0
    probes += _ordered(theirs, PROBE) if owner != THEIRS else 0
    if probes > 0:
        exposed = 1 if probes > fortification else 0
        fortification = max(0, fortification - probes)
    if exposed and fortification == 0:
        my_captures, their_captures = _ordered(mine, CAPTURE), _ordered(theirs, CAPTURE)
        if my_captures > 0 and their_captures == 0 and owner != MINE:
            taker = MINE
        elif their_captures > 0 and my_captures == 0 and owner != THEIRS:
            taker = THEIRS
        if taker != NEUTRAL:
            owner, exposed, compromised = taker, 0, 0
    return owner, fortification, exposed, compromised, taker


@_compiled
def _opportunity(own: bool, value: int, critical: int, exposed: int, compromised: int) -> int:
    if own:
        if compromised:
            return 3 + value
        return 1 + value if critical else 0
    return 3 + value if exposed and not compromised else 2 + value


@_compiled
def _settle(nodes: Integers, k: int) -> None:
    """Write what follows from the orders of node k."""
    owner, fortification, exposed, compromised, taker = _fate(nodes, k)
    value, critical = nodes[k, VALUE], nodes[k, CRITICAL]
    weight = value + critical
    worth = 20 * weight + 3 * fortification - 5 * weight * exposed - 15 * weight * compromised
    nodes[k, _WORTH] = 0 if owner == NEUTRAL else (worth if owner == MINE else -worth)
    nodes[k, _MY_OPPORTUNITY] = _opportunity(owner == MINE, value, critical, exposed, compromised)
    nodes[k, _THEIR_OPPORTUNITY] = _opportunity(owner == THEIRS, value, critical, exposed, compromised)
    nodes[k, _TAKER] = taker


@_compiled
def _choose(nodes: Integers, agents: Integers, agent: int, kind: int, target: int) -> None:
    """Replace the agent's move, and settle the nodes it was and is aimed at."""
    orders = _MY_ORDERS if agent < _TEAM_SIZE else _THEIR_ORDERS
    old_kind, old_target = agents[agent, _KIND], agents[agent, _TARGET]
    agents[agent, _KIND], agents[agent, _TARGET] = kind, target
    if old_kind >= FORTIFY:
        nodes[old_target, orders] -= _order(old_kind)
        if kind < FORTIFY or target != old_target:
            _settle(nodes, old_target)
    if kind >= FORTIFY:
        nodes[target, orders] += _order(kind)
        _settle(nodes, target)


@_compiled
def _resource_after(agents: Integers, agent: int) -> int:
    """An agent's resource after costs and its team's transfers, in agent order."""
    first = agent - agent % _TEAM_SIZE
    for member in range(first, first + _TEAM_SIZE):
        agents[member, _LEFT] = agents[member, RESOURCE] - (1 if agents[member, _KIND] >= FORTIFY else 0)
    for member in range(first, first + _TEAM_SIZE):
        if agents[member, _KIND] == TRANSFER:
            receiver = agents[member, _TARGET]
            if agents[receiver, _LEFT] < _MAX_RESOURCE:
                agents[member, _LEFT] -= 1
                agents[receiver, _LEFT] += 1
    return agents[agent, _LEFT]


@_compiled
def _potential(nodes: Integers, agents: Integers, agent: int) -> int:
    """An agent's resource potential after the turn, in twentieths."""
    # A turn takes one unit at most, so an agent with two or more keeps some resource whatever the others do.
    if agents[agent, RESOURCE] < 2 and _resource_after(agents, agent) == 0:
        return 0
    side, opportunity = (MINE, _MY_OPPORTUNITY) if agent < _TEAM_SIZE else (THEIRS, _THEIR_OPPORTUNITY)
    kind, target = agents[agent, _KIND], agents[agent, _TARGET]
    best = 0
    if kind == CAPTURE and nodes[target, _TAKER] == side:  # it moves there, and remembers the node already
        for k in range(len(nodes)):
            remembered = nodes[k, REMEMBERED + agent]
            if remembered:
                best = max(best, nodes[k, opportunity] if nodes[k, VISIBLE + target] else remembered - 1)
        return best
    best = agents[agent, _OUT_OF_SIGHT]
    for number in range(agents[agent, _IN_SIGHT]):
        best = max(best, nodes[agents[agent, AGENT_COLUMNS + number], opportunity])
    if kind == SCAN:
        best = max(best, nodes[target, opportunity])
    return best


@_compiled
def _float_value(nodes: Integers, potentials: Integers) -> float:
    """MINE's team value under the current orders: terms one after another in node order, then the potentials."""
    total = 0.0
    for k in range(len(nodes)):
        owner, fortification, exposed, compromised, _ = _fate(nodes, k)
        if owner != NEUTRAL:
            sign = 1.0 if owner == MINE else -1.0
            weight = nodes[k, VALUE] + nodes[k, CRITICAL]
            total += sign * weight
            total += sign * (0.15 * fortification)
            if exposed:
                total -= sign * (0.25 * weight)
            if compromised:
                total -= sign * (0.75 * weight)
    own = 0.0
    others = 0.0
    for agent in range(_TEAM_SIZE):
        own += 0.05 * potentials[agent]
        others += 0.05 * potentials[_TEAM_SIZE + agent]
    return total + (own - others)


@_compiled
def _float_reward(nodes: Integers, agents: Integers, before: float) -> float:
    """MINE's reward for the current moves, without terms for invalid agents."""
    potentials = np.zeros(_ALL, np.int64)
    bonuses = np.zeros(2)
    for agent in range(_ALL):
        potentials[agent] = _potential(nodes, agents, agent)
        if agents[agent, _KIND] == SCAN:
            bonuses[agent // _TEAM_SIZE] += 0.10
    return _float_value(nodes, potentials) - before + bonuses[0] - bonuses[1]


@_compiled
def _look_around(nodes: Integers, agents: Integers) -> None:
    """Write what each agent knows after the turn if it stays."""
    for agent in range(_ALL):
        for k in range(len(nodes)):
            remembered = nodes[k, REMEMBERED + agent]
            if remembered and nodes[k, VISIBLE + agents[agent, POSITION]]:
                agents[agent, AGENT_COLUMNS + agents[agent, _IN_SIGHT]] = k
                agents[agent, _IN_SIGHT] += 1
            elif remembered:
                agents[agent, _OUT_OF_SIGHT] = max(agents[agent, _OUT_OF_SIGHT], remembered - 1)


@_compiled
def _scopes(nodes: Integers, agents: Integers, actions: Integers, first: Integers) -> Integers:
    """The scope of each term: of the nodes' worth, of the agents' potentials, of the scan bonus of agents 0..3."""
    size = len(nodes)
    scopes = np.zeros(size + _ALL + _TEAM_SIZE, np.int64)
    senders = np.zeros(_ALL, np.int64)
    traders = 0
    for agent in range(_TEAM_SIZE):
        for row in range(first[agent], first[agent + 1]):
            kind, target = actions[row]
            if kind >= FORTIFY:
                scopes[target] |= 1 << agent
            elif kind == TRANSFER:
                senders[target] |= 1 << agent
                traders |= 1 << agent | 1 << target
        scopes[size + _ALL + agent] = 1 << agent
    for agent in range(_ALL):
        scope = 1 << agent if agent < _TEAM_SIZE else 0
        for number in range(agents[agent, _IN_SIGHT]):
            scope |= scopes[agents[agent, AGENT_COLUMNS + number]]
        if agents[agent, RESOURCE] < 2:
            scope |= senders[agent]
        for row in range(first[agent], first[agent + 1]):
            kind, target = actions[row]
            if kind == SCAN:
                scope |= scopes[target]
            elif kind == CAPTURE:
                for k in range(size):
                    if nodes[k, REMEMBERED + agent] and nodes[k, VISIBLE + target]:
                        scope |= scopes[k]
            elif agent < _TEAM_SIZE and kind == TRANSFER and agents[agent, RESOURCE] < 2 <= agents[target, RESOURCE]:
                scope |= traders  # the receiver may be full by then, so that the sender keeps its last unit
        scopes[size + agent] = scope
    return scopes


@_compiled
def _tabulate(
    nodes: Integers, agents: Integers, actions: Integers, first: Integers, scopes: Integers, scope: int, table: Integers
) -> None:
    """Fill a scope's table, in product order, with the sum of the terms that have exactly this scope."""
    size = len(nodes)
    terms = np.flatnonzero(scopes == scope)
    if len(terms) == 0:
        return
    choice = first[:_TEAM_SIZE].copy()
    for agent in range(_TEAM_SIZE):
        _choose(nodes, agents, agent, actions[choice[agent], 0], actions[choice[agent], 1])
    for entry in range(len(table)):
        for term in terms:
            if term < size:
                table[entry] += nodes[term, _WORTH]
            elif term < size + _TEAM_SIZE:
                table[entry] += _potential(nodes, agents, term - size)
            elif term < size + _ALL:
                table[entry] -= _potential(nodes, agents, term - size)
            elif agents[term - size - _ALL, _KIND] == SCAN:
                table[entry] += _SCAN_BONUS
        for agent in range(_TEAM_SIZE - 1, -1, -1):
            if scope >> agent & 1:
                choice[agent] += 1
                wraps = choice[agent] == first[agent + 1]
                if wraps:
                    choice[agent] = first[agent]
                _choose(nodes, agents, agent, actions[choice[agent], 0], actions[choice[agent], 1])
                if not wraps:
                    break


@_compiled
def _add_table(table: Integers, scope: int, into: Integers, into_scope: int, first: Integers) -> None:
    """Add a scope's table to that of a scope which includes it: to each entry that agrees on the smaller scope."""
    lengths = np.ones(_TEAM_SIZE, np.int64)
    strides = np.zeros(_TEAM_SIZE, np.int64)
    stride = 1
    for agent in range(_TEAM_SIZE - 1, -1, -1):
        if into_scope >> agent & 1:
            lengths[agent] = first[agent + 1] - first[agent]
        if scope >> agent & 1:
            strides[agent] = stride
            stride *= lengths[agent]
    entry = 0
    for a in range(lengths[0]):
        for b in range(lengths[1]):
            for c in range(lengths[2]):
                start = a * strides[0] + b * strides[1] + c * strides[2]
                for d in range(lengths[3]):
                    into[entry] += table[start + d * strides[3]]
                    entry += 1


@_compiled
def _rewards(nodes: Integers, agents: Integers, actions: Integers, first: Integers) -> Integers:
    """MINE's reward of each joint action in product order, in twentieths, up to a constant."""
    scopes = _scopes(nodes, agents, actions, first)
    used = np.zeros(_EVERYONE + 1, np.bool_)
    used[_EVERYONE] = True
    for scope in scopes:
        used[scope] = True
    start = np.zeros(_EVERYONE + 2, np.int64)
    for scope in range(1, _EVERYONE + 1):
        length = 1 if used[scope] else 0
        for agent in range(_TEAM_SIZE):
            if scope >> agent & 1:
                length *= first[agent + 1] - first[agent]
        start[scope + 1] = start[scope] + length
    tables = np.zeros(start[-1], np.int64)
    for scope in range(1, _EVERYONE + 1):
        if used[scope]:
            _tabulate(nodes, agents, actions, first, scopes, scope, tables[start[scope] : start[scope + 1]])
    for scope in range(1, _EVERYONE):
        if used[scope]:
            wider = scope + 1
            while not used[wider] or wider & scope != scope:
                wider += 1
            table = tables[start[scope] : start[scope + 1]]
            _add_table(table, scope, tables[start[wider] : start[wider + 1]], wider, first)
    return tables[start[_EVERYONE] :]


@_compiled
def _prepare(nodes: Integers, agents: Integers, actions: Integers, first: Integers) -> float:
    """Fill in the tables, with the moves of agents 4..7 made; return MINE's team value before the turn."""
    potentials = np.zeros(_ALL, np.int64)
    for agent in range(_ALL):
        if agents[agent, RESOURCE] > 0:
            potentials[agent] = max(0, nodes[:, REMEMBERED + agent].max() - 1)
    before = _float_value(nodes, potentials)
    for k in range(len(nodes)):
        _settle(nodes, k)
    for agent in range(_TEAM_SIZE, _ALL):
        _choose(nodes, agents, agent, actions[first[agent], 0], actions[first[agent], 1])
    _look_around(nodes, agents)
    return before


@_compiled_and_cached
def search(
    given_nodes: Bytes, given_agents: Bytes, given_actions: Bytes, given_first: Bytes, acceptable: Bytes
) -> tuple[float, int, int, int]:
    """Every joint action of agents 0..3 against one given action each of agents 4..7.

    With n nodes in insertion order: ``given_nodes`` (n, VISIBLE + n) and ``given_agents`` (8, AGENT_COLUMNS + n), the
    tables above with zeros to be filled in; ``given_actions`` (m, 2) kind and target (a node, or an agent for
    TRANSFER), the sorted legal actions of each of agents 0..3, then one each of agents 4..7; ``given_first`` (9,) where
    each agent's actions begin, and m. Sets ``acceptable`` (m,) to 1 for actions of agents 0..3 that are in an optimum.

    Returns the first optimum's reward without terms for invalid agents, the number of optima, the number of joint
    actions, and the canonical optimum's number in product order.
    """
    actions, first = given_actions.astype(np.int64), given_first.astype(np.int64)
    nodes, agents = given_nodes.astype(np.int64), given_agents.astype(np.int64)
    before = _prepare(nodes, agents, actions, first)
    rewards = _rewards(nodes, agents, actions, first)
    best = rewards.max()
    reward = 0.0
    optima = 0
    canonical, fewest = 0, _TEAM_SIZE + 1
    for number in range(len(rewards)):
        if rewards[number] != best:
            continue
        optima += 1
        rest, acting = number, 0
        for agent in range(_TEAM_SIZE - 1, -1, -1):
            count = first[agent + 1] - first[agent]
            row = first[agent] + rest % count
            rest //= count
            acceptable[row] = 1
            acting += 1 if actions[row, 0] != WAIT else 0
            if optima == 1:
                _choose(nodes, agents, agent, actions[row, 0], actions[row, 1])
        if optima == 1:
            reward = _float_reward(nodes, agents, before)
        if acting < fewest:  # among optima with equally many acting agents, the first in product order is the least
            canonical, fewest = number, acting
    return reward, optima, len(rewards), canonical
