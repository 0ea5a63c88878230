"""Loading a base model and its tokenizer from a local directory.

Only safetensors are read, no code from the model runs, and nothing is asked of a network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from arena_pipeline.errors import ConfigError
from arena_pipeline.provenance.hashing import tree_sha256
from arena_pipeline.provenance.trees import hash_tree

DTYPES: Final = ("float32", "bfloat16")


def base_sha256(base_path: Path) -> str:
    """The hash that names a base model everywhere: that of its directory's tree of files."""
    return tree_sha256(hash_tree(_directory(base_path)))


def load_tokenizer(base_path: Path) -> Any:
    """The base model's tokenizer, padding on the left as generation needs it (known trouble 20)."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        _directory(base_path), local_files_only=True, trust_remote_code=False, padding_side="left"
    )
    if tokenizer.chat_template is None:
        raise ConfigError(f"{base_path}: its tokenizer has no chat template; use an instruct model")
    return tokenizer


def load_base_model(base_path: Path, dtype: str, device: str, attention: str = "sdpa") -> Any:
    """The base model with its weights cast to ``dtype`` (float32 or bfloat16) on a device, in evaluation mode."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r}: allowed are {', '.join(DTYPES)}")
    model = AutoModelForCausalLM.from_pretrained(
        _directory(base_path),
        dtype=getattr(torch, dtype),
        attn_implementation=attention,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    return model.to(device).eval()


def _directory(base_path: Path) -> Path:
    if not (base_path / "config.json").is_file():
        raise ConfigError(f"{base_path}: not a base model (no config.json); give a directory as transformers saves it")
    return base_path
