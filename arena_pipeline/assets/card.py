"""The adapter's card: what it is made of, what it was shown to do, where it ends, and how to load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from arena_pipeline.assets.training import ADAPTER, SELECTION_FILE
from arena_pipeline.provenance.artifacts import Artifact
from arena_pipeline.provenance.hashing import tree_sha256
from arena_pipeline.resources.reader import BASE_MODEL_FILE
from arena_pipeline.sft.training import RECORD_FILE

CARD_FILE: Final = "README.md"
FILES_FILE: Final = "adapter-files.json"

CARD_INPUTS: Final = ("arena_sft_dataset", "base_model", "lora_checkpoints", "selected_checkpoint", "gate_verdicts")
"""The assets that the card's text follows from,"""
CARD_SETTINGS: Final = ("name", "description", "recipe", "base_model.path", "dataset.directory", "evaluation")
"""and the parts of the experiment: it sees no others, so that its key leaves out nothing."""

_LIMITS: Final = (
    "It answers this project's two prompts, BROADCAST and ACT; under other prompts nothing was measured.",
    "It was measured with greedy decoding, thinking disabled and at most 224 new tokens; sampling was not measured.",
    "Its training labels imitate a local policy and exact solutions; it was not trained by playing.",
)


def adapter_files(chosen: Artifact) -> dict[str, Any]:
    """The files of the selected adapter with their hashes, and the hash that names it."""
    prefix = f"{ADAPTER}/"
    files = {name.removeprefix(prefix): sha256 for name, sha256 in chosen.files.items() if name.startswith(prefix)}
    return {"adapter_sha256": tree_sha256(files), "files": files}


def adapter_folder(chosen: Artifact) -> str:
    """Where the selected adapter lies below the storage directory, the same in every checkout."""
    storage = chosen.path.parents[3]
    return (chosen.path / ADAPTER).relative_to(storage).as_posix()


def write_card(settings: Mapping[str, Any], artifacts: Mapping[str, Artifact]) -> str:
    """The card as Markdown, from the experiment's ``CARD_SETTINGS`` and the artifacts of ``CARD_INPUTS``."""
    verdict = artifacts["gate_verdicts"].read_json("verdict.json")
    selection = artifacts["selected_checkpoint"].read_json(SELECTION_FILE)
    record = artifacts["lora_checkpoints"].read_json(RECORD_FILE)
    base = artifacts["base_model"].read_json(BASE_MODEL_FILE)
    files = adapter_files(artifacts["selected_checkpoint"])
    sections = [
        f"# LoRA adapter of experiment {settings['name']}",
        f"{settings['description']}\n\n**{verdict['conclusion']}**",
        "## What it is made of",
        _table(
            ("part", "name", "SHA-256"),
            [
                ("adapter", f"step {verdict['judged_step']} of {len(record['steps'])}", files["adapter_sha256"]),
                ("base model", base["name"], base["sha256"]),
                ("dataset", settings["dataset.directory"], verdict["dataset_sha256"]),
                ("manifest of the verdict", _manifest(settings["evaluation"]), verdict["manifest_sha256"]),
                ("gate policy", verdict["policy_version"], verdict["policy_sha256"]),
            ],
        ),
        "## Recipe",
        _table(
            ("setting", "value"),
            [(name, _plain(value)) for name, value in settings["recipe"].items() if value is not None],
        ),
        f"Loss: {record['loss']}.",
        "## Gates",
        _table(
            ("gate", "result", "figure", "threshold", "n"),
            [
                (gate["name"], gate["status"].replace("_", " "), _number(gate["figure"]), gate["threshold"], gate["n"])
                for gate in verdict["gates"]
            ],
        ),
        f"{selection['num_eligible']} of {len(selection['candidates'])} checkpoints were eligible on validation.",
        "## Limits",
        "\n".join(f"- {limit}" for limit in (*_LIMITS, *verdict["notes"])),
        "## How to load it",
        f"```python\n{_EXAMPLE.format(base=settings['base_model.path'])}```",
        (
            f"`ADAPTER_FOLDER` is `{adapter_folder(artifacts['selected_checkpoint'])}` below the storage directory, "
            f"and `adapter_path` in what `arena run --experiment {settings['name']} --json` prints."
        ),
        "## Files",
        _table(("file", "SHA-256"), list(files["files"].items())),
    ]
    return "\n\n".join(sections) + "\n"


def _manifest(evaluation: Mapping[str, Any]) -> str:
    return str(evaluation["sealed_manifest"]) + (f", first {evaluation['limit']} cases" if evaluation["limit"] else "")


_EXAMPLE: Final = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = "{base}"
tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="float32"), "ADAPTER_FOLDER")
"""


def _table(headings: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join("" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
