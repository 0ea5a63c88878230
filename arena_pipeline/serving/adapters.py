"""LoRA adapters on disk: two files, safetensors and a configuration that names no place of the machine it was made on.

Source: issue 2, "adapters finite and moved"; known troubles 18, 24 and 26.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from arena_pipeline.errors import TrainingError
from arena_pipeline.provenance.files import read_json, write_bytes, write_json
from arena_pipeline.provenance.hashing import tree_sha256
from arena_pipeline.provenance.trees import hash_tree

WEIGHTS_FILE: Final = "adapter_model.safetensors"
CONFIG_FILE: Final = "adapter_config.json"


def adapter_sha256(directory: Path) -> str:
    """The hash that names an adapter everywhere: that of its directory's tree of files."""
    check_adapter(directory)
    return tree_sha256(hash_tree(directory))


def check_adapter(directory: Path) -> dict[str, Any]:
    """An adapter's configuration; ``TrainingError`` unless the directory holds plain LoRA weights and nothing else."""
    for name in (WEIGHTS_FILE, CONFIG_FILE):
        if not (directory / name).is_file():
            raise TrainingError(f"{directory}: not an adapter ({name} is missing)")
    config = read_json(directory / CONFIG_FILE)
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise TrainingError(f"{directory / CONFIG_FILE}: not the configuration of a LoRA adapter")
    for key in ("modules_to_save", "trainable_token_indices", "use_dora", "bias", "auto_mapping"):
        if config.get(key) not in (None, False, [], "none"):
            raise TrainingError(
                f"{directory / CONFIG_FILE}: {key} is {config[key]!r}; only plain LoRA weights can be served everywhere"
            )
    return config


def adapter_state(model: Any) -> dict[str, Any]:
    """The adapter's tensors by name, as float32 copies on the CPU."""
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model)
    return {name: tensor.detach().float().cpu().contiguous().clone() for name, tensor in sorted(state.items())}


def read_adapter(directory: Path) -> dict[str, Any]:
    """The tensors of an adapter on disk, by the same names as ``adapter_state``."""
    from safetensors.torch import load_file

    check_adapter(directory)
    tensors: dict[str, Any] = load_file(directory / WEIGHTS_FILE)
    return tensors


def write_adapter(model: Any, directory: Path) -> None:
    """Write a model's adapter; equal weights give equal bytes."""
    from safetensors.torch import save

    write_bytes(directory / WEIGHTS_FILE, save(adapter_state(model), metadata={"format": "pt"}))
    config = model.peft_config["default"].to_dict()
    config |= {"base_model_name_or_path": None, "revision": None, "inference_mode": True, "task_type": "CAUSAL_LM"}
    write_json(
        directory / CONFIG_FILE,
        {name: sorted(value) if isinstance(value, set) else value for name, value in config.items()},
    )


def load_adapter(model: Any, directory: Path, *, merge: bool) -> Any:
    """A base model with an adapter on it, or merged into its weights.

    Raises ``TrainingError`` if the adapter's tensors are not exactly those that its configuration puts on this base
    model (PEFT alone would serve the base model with a warning), or if all its B matrices are zero.
    """
    from peft import PeftModel

    expected = read_adapter(directory)
    try:
        adapted = PeftModel.from_pretrained(model, directory, is_trainable=False, local_files_only=True)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(f"{directory}: does not fit the base model ({str(error).splitlines()[0]})") from None
    found = adapter_state(adapted)
    if found.keys() != expected.keys() or any(not found[name].equal(expected[name].float()) for name in expected):
        raise TrainingError(f"{directory}: its tensors are not those of its configuration on this base model")
    if not any(bool(tensor.any()) for name, tensor in expected.items() if ".lora_B." in name):
        raise TrainingError(f"{directory}: all its B matrices are zero, so it changes nothing")
    return adapted.merge_and_unload(safe_merge=True) if merge else adapted.eval()


def movement(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Euclidean norm of what changed between two adapter states; ``TrainingError`` for a value that is not finite."""
    total = 0.0
    for name, tensor in after.items():
        if not bool(tensor.isfinite().all()):
            raise TrainingError(f"adapter weight {name} is not finite; lower the learning rate")
        total += float((tensor - before[name]).double().square().sum())
    return total**0.5
