"""The pre-training corpus: what it may look at, and that its answers are what the prompt says."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import arena_pipeline.arena as arena
import arena_pipeline.base_models as base_models
from arena_pipeline.arena.manifests import EVALUATION_SEEDS
from arena_pipeline.arena.parser import parse_action, parse_broadcast
from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.arena.state import Observation, State
from arena_pipeline.base_models import shards
from arena_pipeline.base_models.corpus import documents as corpus_documents
from arena_pipeline.base_models.corpus import views
from arena_pipeline.base_models.corpus.criteria import FactCriterion, random_action_criterion, random_fact_criterion
from arena_pipeline.base_models.corpus.documents import QUESTION_SYSTEM, CorpusMixture, documents

ROOT = Path(__file__).parents[2]
PACK = PromptPack.load(ROOT / "data" / "prompts" / "arena-v2-open.toml")
EVEN = CorpusMixture(
    questions=0.2, stated_broadcast=0.2, stated_action=0.2, free_broadcast=0.2, free_action=0.2, compound=0.4
)
LOOK_UPS = CorpusMixture(questions=1, stated_broadcast=0, stated_action=0, free_broadcast=0, free_action=0)
# Whatever says what is good to do: labels of the solver, of the local policy, and the reference broadcasts.
FORBIDDEN_MODULES = {"solver", "_search", "policies", "rules"}
FORBIDDEN_NAMES = {"solve", "scripted_policy", "random_legal_policy", "local_priority", "oracle_broadcast"}


def _modules() -> Iterator[Path]:
    for package in (base_models, importlib.import_module("arena_pipeline.base_models.corpus")):
        for module in pkgutil.iter_modules(package.__path__):
            if not module.ispkg:
                yield Path(package.__path__[0]) / f"{module.name}.py"


@pytest.mark.parametrize("path", list(_modules()), ids=lambda path: path.stem)
def test_the_builder_imports_nothing_that_labels(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.module.rpartition(".")[2] not in FORBIDDEN_MODULES, node.module
            assert not FORBIDDEN_NAMES & {alias.name for alias in node.names}, node.module
            assert not node.module.startswith(("arena_pipeline.sft", "arena_pipeline.evaluation")), node.module
        if isinstance(node, ast.Import):
            assert all(alias.name.rpartition(".")[2] not in FORBIDDEN_MODULES for alias in node.names)
        if isinstance(node, (ast.Name, ast.Attribute)):
            assert (node.id if isinstance(node, ast.Name) else node.attr) not in FORBIDDEN_NAMES


def test_documents_are_made_while_every_labelling_function_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*arguments: object, **options: object) -> None:
        raise AssertionError("the corpus reached a labelling function")

    labelling = [
        getattr(loaded, name)
        for module in ("solver", "policies", "rules", "protocol")
        for loaded in [importlib.import_module(f"arena_pipeline.arena.{module}")]
        for name in sorted(FORBIDDEN_NAMES & set(vars(loaded)))
    ]
    assert {function.__name__ for function in labelling} == FORBIDDEN_NAMES
    # In every module that holds one, under whatever name: a copy imported elsewhere would not be broken otherwise.
    for module in [loaded for name, loaded in sys.modules.items() if name.startswith("arena_pipeline.")]:
        for name, value in list(vars(module).items()):
            if any(value is function for function in labelling):
                monkeypatch.setattr(module, name, reached)
    with pytest.raises(AssertionError, match="reached"):
        arena.solve(arena.generate_state(1))
    assert len(list(documents(0, 200, PACK, EVEN))) == 200
    assert len(list(shards.tokenizer_texts(1, 20, PACK, EVEN))) > 40
    tokenizer = str(ROOT / "data" / "base_models" / "arena-tiny" / "tokenizer.json")
    tokens, _, lengths = shards.shard((2, 20, PACK, EVEN, tokenizer))
    assert len(lengths) == 20
    assert len(tokens) == sum(lengths)


def test_every_state_has_a_seed_of_its_own_range(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    generate = views.generate_state

    def recording(seed: int, size: int) -> State:
        seeds.append(seed)
        return generate(seed, size)

    monkeypatch.setattr(views, "generate_state", recording)
    assert len(list(documents(3, 300, PACK, EVEN))) == 300
    assert len(seeds) == 300
    assert min(seeds) >= 10**12
    assert not EVALUATION_SEEDS & set(seeds)


def test_a_shard_is_a_function_of_its_seed() -> None:
    assert list(documents(7, 50, PACK, EVEN)) == list(documents(7, 50, PACK, EVEN))
    assert list(documents(7, 50, PACK, EVEN)) != list(documents(8, 50, PACK, EVEN))


def test_every_protocol_reply_is_valid_in_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[State, str]] = []

    def recording(rng: random.Random) -> tuple[State, str]:
        seen.append(views.random_view(rng))
        return seen[-1]

    monkeypatch.setattr(corpus_documents, "random_view", recording)
    checked = {"BROADCAST": 0, "ACT": 0}
    for messages, (state, agent) in zip(documents(11, 400, PACK, EVEN), seen, strict=False):
        if messages[0][1] == QUESTION_SYSTEM:
            continue
        prompt = json.loads(messages[1][1])
        displayed = [arena.action_from_dict({k: v for k, v in a.items() if k != "id"}) for a in prompt["legal_actions"]]
        for role, content in messages:
            if role == "assistant":
                act = prompt["phase"] == "ACT"
                verdict = parse_action(content, displayed) if act else parse_broadcast(content, state, agent)
                assert verdict.valid, (verdict.error, content)
                checked[prompt["phase"]] += 1
    assert min(checked.values()) > 100


def test_answers_about_fields_are_what_the_message_shows() -> None:
    checked = 0
    for messages in documents(5, 200, PACK, LOOK_UPS):
        body = json.loads(messages[1][1].splitlines()[0])
        known = {seen["node"]: seen for seen in body["observation"]["known_nodes"]}
        for (_, question), (_, answer) in zip(messages[1::2], messages[2::2], strict=True):
            words = question.splitlines()[-1].rstrip("?").split()
            if words[:2] == ["facts", "of"]:
                assert json.loads(answer) == [known[node] for node in words[2:]]
                checked += 1
            elif words[0] == "order":
                assert answer.split() == sorted(words[1:], reverse=True)
                checked += 1
            elif words[0] == "spell":
                entry = next(action for action in body["legal_actions"] if action["id"] == words[1])
                assert json.loads(answer) == {key: value for key, value in entry.items() if key != "id"}
                checked += 1
    assert checked > 300


def test_a_criterion_decides_as_its_words_say() -> None:
    rng = random.Random(1)
    decided = 0
    for _ in range(500):
        state, agent = views.random_view(rng)
        criterion = random_action_criterion(rng, 0.0)
        chosen = criterion.choose(state, agent)
        kinds = [clause.split()[0] for clause in criterion.words.removeprefix("TAKE ").split(";")[0].split(", ")]
        legal = arena.legal_actions(state, agent)
        assert chosen in legal
        if chosen.kind == "WAIT":
            continue
        assert chosen.kind in kinds
        # No clause without a condition that comes earlier could have been met.
        for clause in criterion.words.removeprefix("TAKE ").split(";")[0].split(", "):
            if clause.split()[0] == chosen.kind:
                break
            if len(clause.split()) == 1:
                assert clause not in {action.kind for action in legal}
                decided += 1
    assert decided > 100


def test_facts_are_reported_in_clause_order_and_within_the_limit() -> None:
    rng = random.Random(2)
    for _ in range(300):
        state, agent = views.random_view(rng)
        known = list(state.knowledge[agent].values())
        criterion = random_fact_criterion(rng, 0.4)
        target = rng.choice(known).node
        reported = criterion.choose(known, target)
        assert len(reported) <= criterion.limit
        assert len({seen.node for seen in reported}) == len(reported)
        if criterion.target_first:
            assert reported[0].node == target

        def rank(seen: Observation, criterion: FactCriterion = criterion) -> int:
            return next((i for i, clause in enumerate(criterion.clauses) if clause.holds(seen)), 99)

        ranks = [rank(seen) for seen in reported if not (criterion.target_first and seen.node == target)]
        assert ranks == sorted(ranks)
        assert 99 not in ranks
