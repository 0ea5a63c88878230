"""A promotion pipeline for LoRA fine-tunes of communicating agents."""

__version__ = "0.1.0"
