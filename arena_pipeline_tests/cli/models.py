"""A stand-in base model in a test's project, adapters on it, and an experiment that names both."""

from __future__ import annotations

from pathlib import Path

from arena_pipeline.serving.adapters import write_adapter
from arena_pipeline.serving.loading import load_base_model
from arena_pipeline_tests.stand_ins import write_stand_in_base

BASE = "data/base_models/stand-in"


def add_base(project: Path) -> Path:
    return write_stand_in_base(project / BASE)


def add_adapter(base: Path, directory: Path, seed: int) -> Path:
    """A LoRA adapter with random weights."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(load_base_model(base, "float32", "cpu"), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.5)
    write_adapter(model, directory)
    return directory


def add_experiment(project: Path, name: str, source: str, *changes: tuple[str, str]) -> Path:
    """A copy of an experiment on the stand-in base model; each change is (text that occurs once, its replacement)."""
    text = (project / "data" / "experiments" / f"{source}.toml").read_text()
    model = (('"data/base_models/arena-tiny"', f'"{BASE}"'), ('name = "arena-tiny"', 'name = "stand-in"'))
    for old, new in (*model, *changes):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = project / "data" / "experiments" / f"{name}.toml"
    path.write_text(text)
    return path
