"""The policy file: the committed one is the specification's, and a policy may only tighten."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena_pipeline.errors import ConfigError
from arena_pipeline.evaluation.gate_policy import GatePolicy
from arena_pipeline.provenance.hashing import sha256_file
from arena_pipeline.provenance.pins import Pins
from arena_pipeline_tests.evaluation.players import ROOT

COMMITTED = ROOT / "data" / "gates.toml"
SPECIFIED = {
    "action_schema": 0.995,
    "broadcast_schema": 0.99,
    "unsupported_facts": 0,
    "legal_actions": 0.95,
    "oracle_regret": 0,
    "order_regret_increase": 0.5,
    "order_strict_actions": 0.95,
    "order_strict_fall": 0.01,
    "communication_useful": 0,
    "communication_semantic": 0,
}


def edited(tmp_path: Path, old: str, new: str) -> Path:
    text = COMMITTED.read_text()
    assert text.count(old) == 1, old
    path = tmp_path / "gates.toml"
    path.write_text(text.replace(old, new))
    return path


def test_the_committed_policy_is_the_specified_one() -> None:
    policy = GatePolicy.load(COMMITTED)
    assert policy.thresholds == SPECIFIED
    assert {type(value) for value in policy.thresholds.values()} == {float}, "verdicts name every threshold alike"
    assert policy.deltas["oracle_regret"] == 0.5
    assert policy.deltas["communication_useful"] == policy.deltas["communication_semantic"] == 0.35
    assert policy.alpha == 0.05
    assert policy.sha256 == sha256_file(COMMITTED)
    Pins.load(ROOT / "data" / "pins.toml").expect("gates", policy.version, policy.sha256, COMMITTED)


@pytest.mark.parametrize(
    ("name", "looser", "stricter"),
    [
        ("action_schema", "0.99", "0.999"),
        ("broadcast_schema", "0.98", "0.991"),
        ("unsupported_facts", "1", None),
        ("legal_actions", "0.94", "1.0"),
        ("oracle_regret", "0.05", "-0.5"),
        ("order_regret_increase", "0.55", "0.4"),
        ("order_strict_actions", "0.94", "0.96"),
        ("order_strict_fall", "0.02", "0.0"),
        ("communication_useful", "-0.05", "0.35"),
        ("communication_semantic", "-0.05", "0.35"),
    ],
)
def test_thresholds_only_tighten(name: str, looser: str, stricter: str | None, tmp_path: Path) -> None:
    thresholds, rest = COMMITTED.read_text().split("[deltas]")
    line = next(line for line in thresholds.splitlines() if line.startswith(f"{name} = "))
    path = tmp_path / "gates.toml"

    def write(value: str) -> None:
        path.write_text(thresholds.replace(line, f"{name} = {value}") + "[deltas]" + rest)

    write(looser)
    with pytest.raises(
        ConfigError, match=rf"gates\.toml: thresholds\.{name}: found {float(looser)}; allowed: .*only tighten"
    ):
        GatePolicy.load(path)
    if stricter is not None:
        write(stricter)
        assert GatePolicy.load(path).thresholds[name] == float(stricter)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("alpha = 0.05", "alpha = 0.06", r"levels\.alpha: found 0\.06; allowed: 0\.05 or less, .* only tighten"),
        ("alpha = 0.05", "alpha = 0", r"levels\.alpha: found 0; allowed: greater than 0"),
        ("alpha = 0.05", "alpha = 0.05\nbeta = 1", r"levels\.beta: unknown key; allowed: alpha"),
        ("order_robustness = 0.5", "order_robustness = -1", r"deltas\.order_robustness: found -1; allowed: greater"),
        ("order_robustness = 0.5", "", r"deltas\.order_robustness: missing; add it: Smallest regret increase"),
        ("legal_actions = 0.95", "", r"thresholds\.legal_actions: missing; add it: Least share of legal ACT replies"),
        ("legal_actions = 0.95", "legal_actions = true", r"thresholds\.legal_actions: found True; allowed: a valid"),
        ("legal_actions = 0.95", 'legal_actions = "0.95"', r"thresholds\.legal_actions: found .0\.95.; allowed: a "),
        ("legal_actions = 0.95", "legal_actions = nan", r"thresholds\.legal_actions: found nan; allowed: a finite"),
        ("legal_actions = 0.95", "legal_actions = 0.95\nluck = 1", r"thresholds\.luck: unknown key; allowed: action_s"),
        ('version = "gates-v1"', "", "version: missing; add it"),
        ('version = "gates-v1"', "version = 1", "version: found 1; allowed: a valid string"),
        ('version = "gates-v1"', 'version = ""', "version: found ''; allowed: "),
        ('version = "gates-v1"', 'version = "gates-v1"\ndeltas = 3', "not a TOML file"),
        ("[levels]", "[level]", r"level: unknown key \(did you mean levels\?\)"),
    ],
)
def test_malformed_policies_are_refused(old: str, new: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"gates\.toml: {named}"):
        GatePolicy.load(edited(tmp_path, old, new))


def test_a_missing_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        GatePolicy.load(tmp_path / "none.toml")
