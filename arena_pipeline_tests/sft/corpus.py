"""Dataset directories rewritten for tests: tampered with, re-hashed, or laid out as published copies are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from arena_pipeline.provenance.hashing import sha256_json, sha256_text

GOLDEN = Path(__file__).parent.parent / "golden"
SPLITS = ("train", "validation", "test")
FILLED = {
    "agent_id": "",
    "arena_version": "",
    "dataset_version": "",
    "generator_mode": "",
    "generator_version": "",
    "label_source": "",
    "phase": "",
    "policy_reward": 0.0,
    "prompt_version": "",
    "seed": 0,
    "solver_joint_actions_explored": 0,
    "solver_optimal_count": 0,
    "solver_reward": 0.0,
    "split": "",
    "targeted_skill": "",
}

Body = dict[str, Any]
Form = Callable[[Body], str]


def golden(name: str) -> Any:
    """A golden file's content."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def canonical(body: Body) -> str:
    """A row's line without its newline."""
    return json.dumps(body, sort_keys=True)


def read_bodies(path: Path) -> list[Body]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_bodies(path: Path, bodies: Iterable[Body], form: Form = canonical) -> None:
    """Write rows, one a line."""
    path.write_text("".join(form(body) + "\n" for body in bodies), encoding="utf-8")


def rehash(body: Body) -> Body:
    """Give a changed row the id that its content hashes to, so that another rule than the id's must find the change."""
    body["id"] = sha256_json({"messages": body["messages"], "metadata": body["metadata"]})
    return body


def copy(directory: Path, target: Path) -> Path:
    """A copy to tamper with."""
    shutil.copytree(directory, target)
    return target


def content_hash(directory: Path) -> str:
    """The content hash of the ids that the files state."""
    ids = [body["id"] for split in SPLITS for body in read_bodies(directory / f"{split}.jsonl")]
    return sha256_text("".join(sorted(ids)))


def change_manifest(directory: Path, **values: Any) -> None:
    """Change values of a manifest, in its canonical form."""
    path = directory / "manifest.json"
    body = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(json.dumps(body, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def label_kind(body: Body) -> str:
    """The kind of action that an ACT row's label chooses."""
    chosen = json.loads(body["messages"][2]["content"])["action_id"]
    shown = json.loads(body["messages"][1]["content"])["legal_actions"]
    return str(next(action["type"] for action in shown if action["id"] == chosen))


def publish(
    directory: Path,
    target: Path,
    *,
    common_name: str = "train_action.jsonl",
    form: Form = canonical,
    arrange: Callable[[list[Body]], list[Body]] = lambda bodies: bodies,
    manifest: bool = True,
) -> Path:
    """A published copy: metadata filled with defaults, train in three files, a README."""
    target.mkdir()
    parts: dict[str, list[Body]] = {"train_broadcast.jsonl": [], common_name: [], "train_action_rare.jsonl": []}
    for split in SPLITS:
        bodies = read_bodies(directory / f"{split}.jsonl")
        for body in bodies:
            body["metadata"] = {**FILLED, **body["metadata"]}
        if split != "train":
            parts[f"{split}.jsonl"] = bodies
            continue
        for body in bodies:
            if body["metadata"]["phase"] == "BROADCAST":
                parts["train_broadcast.jsonl"].append(body)
            elif label_kind(body) in ("WAIT", "SCAN", "TRANSFER"):
                parts["train_action_rare.jsonl"].append(body)
            else:
                parts[common_name].append(body)
    for name, bodies in parts.items():
        write_bodies(target / name, arrange(bodies), form)
    (target / "README.md").write_text("# A published copy\n", encoding="utf-8")
    if manifest:
        shutil.copy(directory / "manifest.json", target)
    return target
