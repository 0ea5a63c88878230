"""The audit's rules for one row, each judged from the row's content and its seed (dataset specification, "Audit")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from arena_pipeline.arena.manifests import EVALUATION_SEEDS
from arena_pipeline.arena.parser import Verdict, parse_action, parse_broadcast
from arena_pipeline.errors import DatasetError
from arena_pipeline.provenance.hashing import canonical_json
from arena_pipeline.sft.audit_labels import Facts, SeedFacts, bucket_split
from arena_pipeline.sft.reading import Line, parse_object
from arena_pipeline.sft.rows import Row, row_id

Finding = tuple[str, str]
"""(rule, detail)"""

VERSION_KEYS: Final = ("arena_version", "dataset_version", "generator_version", "prompt_version")
_RARE_KINDS: Final = ("SCAN", "TRANSFER", "WAIT")
# A key of this kind inside a user message would give the label away, whatever its value.
_TELLTALE_KEYS: Final = (
    "action_id",
    "generator_mode",
    "label_source",
    "policy_reward",
    "solver_joint_actions_explored",
    "solver_optimal_count",
    "solver_reward",
    "targeted_skill",
)


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts that most rows carry: one wording is the dataset's, and rows with another are failures."""

    systems: dict[str, str]
    objective: str
    version: str


User = dict[str, Any] | None
"""A row's user message as an object, None where it is not one."""


def user_object(row: Row) -> User:
    """The user message, read once for all rules."""
    try:
        return parse_object(row.user)
    except DatasetError:
        return None


def common_texts(rows: Iterable[tuple[Row, User]]) -> Texts:
    """The most frequent system text of each phase, objective and prompt version."""
    systems: dict[str, Counter[str]] = {"ACT": Counter(), "BROADCAST": Counter()}
    objectives: Counter[str] = Counter()
    versions: Counter[str] = Counter()
    for row, user in rows:
        systems[row.phase][row.system] += 1
        versions[row.metadata["prompt_version"]] += 1
        if user is not None and isinstance(user.get("team_objective"), str):
            objectives[user["team_objective"]] += 1
    return Texts({phase: _most(found) for phase, found in systems.items()}, _most(objectives), _most(versions))


def _most(found: Counter[str]) -> str:
    return found.most_common(1)[0][0] if found else ""


def parse_label(row: Row, facts: SeedFacts) -> Verdict:
    """The strict parser's verdict on a row's label, in the state that its seed gives."""
    if row.phase == "BROADCAST":
        return parse_broadcast(row.label, facts.state, row.agent_id)
    return parse_action(row.label, facts.displayed(row.agent_id))


def check_row(line: Line, row: Row, user: User, verdict: Verdict, facts: Facts, texts: Texts) -> Iterator[Finding]:
    """The rules that one row breaks."""
    of_seed = facts.of(row.skill, row.seed)
    computed = row_id(row.messages, row.metadata)
    if computed != row.id:
        yield "id", f"states {row.id}, but its content hashes to {computed}"
    if row.seed in EVALUATION_SEEDS:
        yield "frozen_seed", f"seed {row.seed} belongs to an evaluation manifest"
    if row.split != bucket_split(row.seed):
        yield "split", f"states {row.split}, but seed {row.seed} is of {bucket_split(row.seed)}"
    yield from _placement(line, row, verdict)
    yield from _prompt(row, user, of_seed, texts)
    yield from _label(row, verdict, of_seed)
    yield from _metadata(row, of_seed, texts)


def _placement(line: Line, row: Row, verdict: Verdict) -> Iterator[Finding]:
    if row.split != line.file.split:
        yield "file", f"a row of {row.split} in a file of {line.file.split}"
    found = "broadcast"
    if row.phase == "ACT" and verdict.value is not None:
        found = "action_rare" if verdict.value.kind in _RARE_KINDS else "action_common"
    if line.file.stratum is not None and found != line.file.stratum:
        yield "file", f"a row of {found} in the file of {line.file.stratum}"


def _prompt(row: Row, user: User, of_seed: SeedFacts, texts: Texts) -> Iterator[Finding]:
    if row.system != texts.systems[row.phase]:
        yield "prompt_text", f"its system text is not that of the other {row.phase} rows"
    if not row.system.strip() or not texts.objective.strip():
        yield "prompt_text", "a system text or objective is empty"
    yield from _leaks(row, user)
    expected = of_seed.user_body(row.phase, row.agent_id, texts.objective)
    if row.user == canonical_json(expected):
        return
    if user is None:
        yield "user_json", "the user message is not a JSON object"
        return
    if user.get("legal_actions") != expected["legal_actions"]:
        yield "display_order", "legal_actions are not the agent's, in display order under A0, A1, ..."
    different = sorted(key for key in user.keys() | expected.keys() if user.get(key, ...) != expected.get(key, ...))
    where = f"differs in {', '.join(different)}" if different else "is not its compact key-sorted JSON"
    yield "user_json", f"the user message {where} (rebuilt from seed {row.seed})"


def _leaks(row: Row, user: User) -> Iterator[Finding]:
    if row.label in row.user:
        yield "answer_leak", "the user message contains the label"
    for key in _TELLTALE_KEYS:
        if f'"{key}"' in row.user:
            yield "answer_leak", f"the user message has a key {key!r}"
    inbox = user.get("inbox") if user is not None else None
    if isinstance(inbox, list) and any(
        isinstance(entry, dict) and entry.get("sender") == row.agent_id for entry in inbox
    ):
        yield "answer_leak", f"the inbox holds {row.agent_id}'s own broadcast"


def _label(row: Row, verdict: Verdict, of_seed: SeedFacts) -> Iterator[Finding]:
    if not verdict.valid:
        yield "label_form", f"the strict parser refuses the label {row.label[:80]!r}: {verdict.error}"
    expected = of_seed.label(row.phase, row.agent_id)
    if row.label != expected:
        yield "label", f"is {row.label[:80]!r} instead of {expected[:80]!r}"
    if row.phase == "ACT" and verdict.valid:
        yield from of_seed.broken_act_rules(row.agent_id, verdict.value)


def _metadata(row: Row, of_seed: SeedFacts, texts: Texts) -> Iterator[Finding]:
    expected = of_seed.metadata(row.phase, row.agent_id, texts.version)
    for key, value in row.metadata.items():
        # Written out, so that -0.0 is not 0.0 and the last bit of a reward counts.
        if key != "split" and repr(value) != repr(expected.get(key)):
            rule = "version" if key in VERSION_KEYS else "metadata_value"
            yield rule, f"{key} is {value!r} instead of {expected.get(key)!r}"
