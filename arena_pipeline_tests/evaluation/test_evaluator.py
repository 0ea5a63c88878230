"""The whole evaluator: oracle and scripts through prompt, text and parser; a model's faults counted one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.arena.manifests import MANIFESTS
from arena_pipeline.arena.observation import displayed_actions
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.rules import step
from arena_pipeline.arena.state import BLUE_AGENTS, WAIT
from arena_pipeline.errors import ConfigError, EvaluationError, SealedSetRefused
from arena_pipeline.evaluation.baselines import baselines
from arena_pipeline.evaluation.cases import solved_case
from arena_pipeline.evaluation.conditions import (
    CONDITIONS,
    PLAYS,
    Play,
    action_key,
    broadcast_key,
    plan_actions,
    plan_broadcasts,
)
from arena_pipeline.evaluation.rows import Subject, score
from arena_pipeline.evaluation.runner import evaluate
from arena_pipeline.evaluation.scripted_provider import SCRIPT_NAMES, ScriptedProvider
from arena_pipeline.evaluation.summary import summarize
from arena_pipeline.serving.requests import ChatPrompt, Completion, Request
from arena_pipeline_tests.evaluation.players import (
    ADAPTER_SHA256,
    BASE_SHA256,
    Impersonator,
    Listener,
    RamblingPlayer,
    identity,
    pack,
)

DEV = MANIFESTS["arena-dev"]


@pytest.mark.parametrize("name", SCRIPT_NAMES)
def test_scripts_reach_their_baselines_through_the_text(name: str, tmp_path: Path) -> None:
    evaluation = evaluate(tmp_path, "arena-frozen-60", pack(), ScriptedProvider(name), batch_size=64)
    table = {figures["policy"]: figures for figures in baselines("arena-frozen-60")["policies"]}
    expected = table["exact_solver" if name == "oracle" else name]
    assert [len(evaluation.rows), evaluation.summary["cases"]] == [60, 60]
    plays = evaluation.summary["conditions"] | evaluation.summary["rotations"]
    assert set(plays) == {play.name for play in PLAYS}
    for play, figures in plays.items():
        assert figures["strict_action_rate"] == 1.0
        assert figures["mean_reward"] == pytest.approx(expected["mean_reward"], abs=1e-12)
        assert figures["mean_regret"] == pytest.approx(expected["mean_oracle_regret"], abs=1e-12)
        assert [row["plays"][play]["reward"] for row in evaluation.rows] == expected["rewards"]
    assert evaluation.summary["messages"]["strict_message_rate"] == 1.0
    assert evaluation.summary["messages"]["unsupported_facts"] == 0
    assert evaluation.summary["order_consistency"] == 1.0
    assert all(effect["mean"] == 0 and effect["share_zero"] == 1 for effect in evaluation.summary["effects"].values())


def test_the_oracle_proves_the_evaluator(tmp_path: Path) -> None:
    summary = evaluate(tmp_path, "arena-frozen-60", pack(), ScriptedProvider("oracle"), batch_size=64).summary
    assert list(summary["conditions"]) == list(CONDITIONS)
    for figures in summary["conditions"].values():
        assert figures["mean_regret"] == 0
        assert figures["optimal_rate"] == 1.0
        assert figures["mean_reward"] == pytest.approx(2.645, abs=1e-12)
        assert figures["regret_interval"] == [0, 0]
        assert figures["non_redundant_rate"] == 1.0


def test_a_script_can_only_name_what_the_prompt_shows() -> None:
    case = DEV[0]
    request = next(
        request
        for request in plan_actions((case,), pack(), answers(plan_broadcasts((case,), pack())))
        if len(json.loads(request.prompt.user)["legal_actions"]) > 1
    )
    provider = ScriptedProvider("oracle")
    named = json.loads(provider.respond([request])[0].text)["action_id"]
    body = json.loads(request.prompt.user)
    shown = body["legal_actions"]
    body["legal_actions"] = [
        {**action, "id": f"A{position}"} for position, action in enumerate(shown[-1:] + shown[:-1])
    ]
    moved = Request(request.key, "ACT", ChatPrompt("", json.dumps(body)), request.agent_id, case)
    assert json.loads(provider.respond([moved])[0].text)["action_id"] == f"A{(int(named[1:]) + 1) % len(shown)}"
    body["legal_actions"] = [action for action in body["legal_actions"] if action["type"] == "NOTHING"] or [
        {"type": "SCAN", "target": "V00", "id": "A0"}
    ]
    hidden = Request(request.key, "ACT", ChatPrompt("", json.dumps(body)), request.agent_id, case)
    with pytest.raises(EvaluationError, match="does not show"):
        provider.respond([hidden])


def test_scripts_have_names_and_need_a_case() -> None:
    with pytest.raises(ConfigError, match="oracle, wait, independent_local, sequential_heuristic"):
        ScriptedProvider("random_legal")
    with pytest.raises(EvaluationError, match="row-1"):
        ScriptedProvider("oracle").respond([Request("row-1", "ACT", ChatPrompt("", ""), "blue-0", {"seed": 1})])


def answers(requests: list[Request], script: str = "independent_local") -> dict[str, Completion]:
    provider = ScriptedProvider(script)
    return dict(zip([request.key for request in requests], provider.respond(requests), strict=True))


def scored(
    change_broadcasts: Callable[[dict[str, Completion]], None] = lambda replies: None,
    change_actions: Callable[[dict[str, Completion]], None] = lambda replies: None,
    cases: tuple[Any, ...] = DEV[:3],
) -> list[dict[str, Any]]:
    """Rows of a player that is independent_local but for the changes."""
    broadcasts = answers(plan_broadcasts(cases, pack()))
    change_broadcasts(broadcasts)
    actions = answers(plan_actions(cases, pack(), broadcasts))
    change_actions(actions)
    return score(Subject("three", cases, pack(), identity()), broadcasts, actions)


def test_an_invalid_action_waits_and_counts() -> None:
    key = action_key(DEV[1], Play("generated", 0), "blue-2")
    rows = scored(change_actions=lambda replies: replies.update({key: Completion('{"action_id":"A99"}', "stop")}))
    play = rows[1]["plays"]["generated"]
    reply = play["replies"]["blue-2"]
    assert (reply["valid"], reply["error"], reply["schema_valid"]) == (False, "action_id_range", True)
    assert (reply["text"], reply["action"]) == ('{"action_id":"A99"}', {"type": "WAIT"})
    assert (play["valid_replies"], play["optimal"]) == (3, False)
    solved = solved_case(DEV[1])
    joint = {**solved.red_actions, **scripted_policy("independent_local", solved.state, "BLUE"), "blue-2": WAIT}
    assert play["reward"] == step(solved.state, joint).rewards["BLUE"]
    assert play["regret"] == pytest.approx(solved.solution.reward - play["reward"], abs=1e-9)
    assert rows[1]["order_consistent"] is False
    assert rows[0]["order_consistent"] is True
    summary = summarize(rows, DEV[:3])
    assert summary["conditions"]["generated"]["valid_replies"] == 11
    assert summary["conditions"]["generated"]["strict_action_rate"] == 11 / 12
    assert summary["conditions"]["dropped"]["strict_action_rate"] == 1.0
    assert summary["order_consistency"] == 2 / 3


def test_the_optimum_with_an_invalid_reply_is_not_optimal() -> None:
    """Where waiting happens to be optimal for an agent, an invalid reply still does not count as optimal."""
    for case in DEV:
        solved = solved_case(case)
        waiting = [agent for agent in BLUE_AGENTS if solved.solution.canonical[agent] == WAIT]
        if waiting:
            break
    else:
        pytest.fail("no case of arena-dev has a WAIT in its optimum")
    cases = (case,)
    broadcasts = answers(plan_broadcasts(cases, pack()), "oracle")
    actions = answers(plan_actions(cases, pack(), broadcasts), "oracle")
    actions[action_key(case, Play("dropped", 0), waiting[0])] = Completion("wait", "stop")
    row = score(Subject("one", cases, pack(), identity()), broadcasts, actions)[0]
    assert (row["plays"]["dropped"]["regret"], row["plays"]["dropped"]["optimal"]) == (0, False)
    assert (row["plays"]["generated"]["regret"], row["plays"]["generated"]["optimal"]) == (0, True)


def test_another_choice_in_another_order_is_inconsistent() -> None:
    case = DEV[0]
    solved = solved_case(case)
    play = Play("generated", 2)
    agent = next(agent for agent in BLUE_AGENTS if len(displayed_actions(solved.state, agent, 0)) > 1)
    key = action_key(case, play, agent)

    def choose_another(replies: dict[str, Completion]) -> None:
        other = "A1" if replies[key].text == '{"action_id":"A0"}' else "A0"
        replies[key] = Completion(f'{{"action_id":"{other}"}}', "stop")

    rows = scored(change_actions=choose_another)
    assert [row["order_consistent"] for row in rows] == [False, True, True]
    assert rows[0]["plays"]["generated-p2"]["valid_replies"] == 4


def test_invalid_in_every_order_is_not_consistent() -> None:
    keys = [action_key(DEV[2], Play("generated", rotation), "blue-1") for rotation in (0, 1, 2)]
    rows = scored(change_actions=lambda replies: replies.update({key: Completion("", "stop") for key in keys}))
    assert [row["order_consistent"] for row in rows] == [True, True, False]


def test_message_figures_count_every_fault_apart() -> None:
    fact = json.loads(answers(plan_broadcasts(DEV[:1], pack()))[broadcast_key(DEV[0], "blue-0")].text)["facts"][0]
    false_fact = {**fact, "value": fact["value"] % 3 + 1}
    faulty = {
        "blue-0": {"facts": [false_fact], "intent": None, "request_resource": 0},
        "blue-1": {"facts": [], "intent": {"type": "SCAN", "target": "V00"}, "request_resource": 0},
        "blue-2": {"facts": [], "intent": None, "request_resource": 2},
        "blue-3": {"facts": [], "intent": None, "request_resource": 0},
    }

    def change(replies: dict[str, Completion]) -> None:
        for agent, message in faulty.items():
            replies[broadcast_key(DEV[0], agent)] = Completion(
                json.dumps(message), "length" if agent == "blue-2" else "stop"
            )

    rows = scored(change_broadcasts=change, cases=DEV[:1])
    figures = summarize(rows, DEV[:1])["messages"]
    assert figures["messages"] == 4
    assert (figures["valid_messages"], figures["strict_message_rate"]) == (1, 0.25)
    assert figures["schema_valid"] == 0.75
    assert figures["supported"] == pytest.approx(2 / 3)
    assert figures["legal"] == 0.5
    assert figures["empty_share"] == 0.25
    assert (figures["facts"], figures["unsupported_facts"]) == (1, 1)
    assert summarize(rows, DEV[:1])["replies_cut_at_token_limit"] == {"broadcasts": 1, "actions": 0}


def test_effects_are_formed_from_rewards_on_the_grid(tmp_path: Path) -> None:
    evaluation = evaluate(tmp_path, "arena-dev:9", pack(), Listener(ADAPTER_SHA256), batch_size=50)
    for row in evaluation.rows:
        rewards = {name: play["reward"] for name, play in row["plays"].items()}
        assert row["effects"]["generated_minus_dropped"] == round(20 * (rewards["generated"] - rewards["dropped"])) / 20
        assert (
            row["effects"]["generated_minus_shuffled"] == round(20 * (rewards["generated"] - rewards["shuffled"])) / 20
        )
        assert row["effects"]["reference_minus_generated"] == 0
    effect = evaluation.summary["effects"]["generated_minus_dropped"]
    values = [row["effects"]["generated_minus_dropped"] for row in evaluation.rows]
    assert effect["mean"] == pytest.approx(sum(values) / 9)
    assert effect["share_positive"] == sum(value > 0 for value in values) / 9 > 0
    assert effect["share_zero"] == sum(value == 0 for value in values) / 9


def test_rows_name_what_they_are_of(tmp_path: Path) -> None:
    player = RamblingPlayer(ADAPTER_SHA256)
    evaluation = evaluate(tmp_path, "arena-dev:6", pack(), player, batch_size=16)
    for row in evaluation.rows:
        assert row["manifest"] == "arena-dev:6"
        assert row["prompt_sha256"] == pack().sha256
        assert (row["model"]["base_sha256"], row["model"]["adapter_sha256"]) == (BASE_SHA256, ADAPTER_SHA256)
        assert len(row["broadcasts"]) == 4
        assert sum(len(play["replies"]) for play in row["plays"].values()) == 24
    faults = [
        reply["error"]
        for row in evaluation.rows
        for replies in (row["broadcasts"], *(play["replies"] for play in row["plays"].values()))
        for reply in replies.values()
        if not reply["valid"]
    ]
    assert faults
    assert set(faults) == {"invalid_json"}
    slices = evaluation.summary["slices"]
    assert {name: {value: part["cases"] for value, part in parts.items()} for name, parts in slices.items()} == {
        "size": {"12": 6},
        "style": {"aggressive": 2, "balanced": 2, "defensive": 2},
    }


def test_slices_add_up(tmp_path: Path) -> None:
    summary = evaluate(tmp_path, "arena-dev", pack(), RamblingPlayer(), batch_size=256).summary
    for parts in summary["slices"].values():
        assert sum(part["cases"] for part in parts.values()) == 60
        for condition, whole in summary["conditions"].items():
            total = sum(part["cases"] * part["conditions"][condition]["mean_regret"] for part in parts.values())
            assert total / 60 == pytest.approx(whole["mean_regret"], abs=1e-9)


def test_identical_prompts_of_a_model_are_asked_once(tmp_path: Path) -> None:
    player = RamblingPlayer()
    evaluate(tmp_path, "arena-dev:6", pack(), player, batch_size=16)
    prompts = [request.prompt for request in player.asked]
    assert len(prompts) == len(set(prompts)) < 6 * 28


def test_an_interrupted_evaluation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    class Stopping(RamblingPlayer):
        def respond(self, requests: Any) -> list[Completion]:
            if len(self.asked) >= 64:
                raise KeyboardInterrupt
            return super().respond(requests)

    whole = evaluate(tmp_path / "whole", "arena-dev:6", pack(), RamblingPlayer(), batch_size=16)
    first = Stopping()
    with pytest.raises(KeyboardInterrupt):
        evaluate(tmp_path / "cut", "arena-dev:6", pack(), first, batch_size=16)
    assert not (tmp_path / "cut" / "rows.jsonl").exists()
    second = RamblingPlayer()
    resumed = evaluate(tmp_path / "cut", "arena-dev:6", pack(), second, batch_size=16)
    assert resumed == whole
    assert not {request.key for request in first.asked} & {request.key for request in second.asked}
    third = RamblingPlayer()
    assert evaluate(tmp_path / "cut", "arena-dev:6", pack(), third, batch_size=16) == whole
    assert third.asked == []


def test_a_directory_holds_one_evaluation(tmp_path: Path) -> None:
    evaluate(tmp_path, "arena-dev:2", pack(), RamblingPlayer(), batch_size=16)
    for manifest, player, batch_size in (
        ("arena-dev:3", RamblingPlayer(), 16),
        ("arena-dev:2", RamblingPlayer(ADAPTER_SHA256), 16),
        ("arena-dev:2", RamblingPlayer(), 8),
    ):
        with pytest.raises(EvaluationError, match="another evaluation"):
            evaluate(tmp_path, manifest, pack(), player, batch_size=batch_size)


@pytest.mark.parametrize("manifest", ["arena-frozen-60:2", "arena-eval-600:2"])
def test_sealed_cases_need_an_opening_for_this_adapter(manifest: str, tmp_path: Path) -> None:
    tuned = RamblingPlayer(ADAPTER_SHA256)
    for opened_for in (None, "c" * 64):
        with pytest.raises(SealedSetRefused, match=ADAPTER_SHA256):
            evaluate(tmp_path, manifest, pack(), tuned, batch_size=16, opened_for_adapter=opened_for)
    assert tuned.asked == []
    evaluate(tmp_path / "sft", manifest, pack(), tuned, batch_size=16, opened_for_adapter=ADAPTER_SHA256)
    evaluate(tmp_path / "base", manifest, pack(), RamblingPlayer(), batch_size=16)
    evaluate(tmp_path / "oracle", manifest, pack(), ScriptedProvider("oracle"), batch_size=16)


def test_a_model_of_unknown_weights_does_not_play_sealed_cases(tmp_path: Path) -> None:
    server = RamblingPlayer(base_sha256=None)
    with pytest.raises(SealedSetRefused):
        evaluate(tmp_path, "arena-frozen-60:2", pack(), server, batch_size=16)
    evaluate(tmp_path / "dev", "arena-dev:2", pack(), server, batch_size=16)


def test_no_case_leaves_the_denominator() -> None:
    rows = scored()
    with pytest.raises(EvaluationError, match=str(DEV[1].seed)):
        summarize([rows[0], rows[2]], DEV[:3])
    with pytest.raises(EvaluationError, match="each once and in order"):
        summarize([rows[0], rows[1], rows[2], rows[2]], DEV[:3])
    with pytest.raises(EvaluationError, match="each once and in order"):
        summarize([rows[1], rows[0], rows[2]], DEV[:3])
    with pytest.raises(EvaluationError, match="model differs"):
        summarize([rows[0], rows[1], {**rows[2], "model": identity(ADAPTER_SHA256)}], DEV[:3])
    with pytest.raises(EvaluationError, match="without cases"):
        summarize([], ())


@pytest.mark.parametrize("phase", ["broadcast", "dropped", "generated-p2"])
def test_a_missing_reply_is_an_error(phase: str) -> None:
    def drop(replies: dict[str, Completion]) -> None:
        for key in list(replies):
            if f"{DEV[1].seed}" in key and f"/{phase}/blue-3" in key:
                del replies[key]

    with pytest.raises(EvaluationError, match=f"{phase}/blue-3"):
        scored(drop, drop)


def test_an_impersonated_oracle_scores_like_the_oracle(tmp_path: Path) -> None:
    impersonated = evaluate(tmp_path / "a", "arena-dev:4", pack(), Impersonator("oracle"), batch_size=16)
    oracle = evaluate(tmp_path / "b", "arena-dev:4", pack(), ScriptedProvider("oracle"), batch_size=16)
    assert [row["plays"] for row in impersonated.rows] == [row["plays"] for row in oracle.rows]
