"""`arena eval`: a manifest played outside Dagster, by a script or a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_pipeline.cli.players import player
from arena_pipeline.cli.project import DEFAULT_EXPERIMENT, Project, find_project
from arena_pipeline.cli.screen import JsonOption, Screen, interruptible
from arena_pipeline.cli.sealed import known_bases, require_opened
from arena_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from arena_pipeline.arena.prompts import PromptPack
    from arena_pipeline.experiments import Experiment


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("eval", epilog="Example: arena eval --provider oracle --out storage/oracle")(evaluate)


def evaluate(
    provider: Annotated[
        str, typer.Option(help="oracle, scripted:NAME (such as scripted:wait) or transformers.", metavar="PROVIDER")
    ],
    out: Annotated[Path, typer.Option(help="Directory for this evaluation; an unfinished one is resumed.")],
    manifest: Annotated[
        str, typer.Option(help="Which cases; NAME:N are the first N of them.", metavar="NAME")
    ] = "arena-dev",
    model: Annotated[
        Path | None, typer.Option(help="Base model, for transformers. Default: the experiment's.", metavar="DIR")
    ] = None,
    adapter: Annotated[Path | None, typer.Option(help="LoRA adapter on the base model.", metavar="DIR")] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            help="Dataset whose rows carry the prompts' texts. Default: the experiment's, or its pack.",
            metavar="DIR",
        ),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompt pack whose texts are used instead.", metavar="PACK")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Experiment that gives what is left out here. Default: tiny-cpu.", metavar="NAME")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Requests in a batch. Default: the experiment's.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play every case of a manifest in the four conditions and write rows.jsonl and summary.json.

    The conditions say what messages the agents get: their own (generated), none (dropped), the reference ones, or
    another case's (shuffled). Every raw reply is on disk before it is scored; the same command resumes a stopped one.

    Sealed manifests are free for the oracle, scripts, and a base model that is pinned or recorded. An adapter plays one
    only with --experiment, after `arena run` opened it for that very adapter.
    """
    from arena_pipeline.evaluation.cases import manifest_cases
    from arena_pipeline.evaluation.runner import evaluate as play
    from arena_pipeline.evaluation.runner import is_sealed
    from arena_pipeline.experiments import load_experiment
    from arena_pipeline.serving.sealed import plays_freely, require_known_base

    project = find_project()
    cases = manifest_cases(manifest)
    settings = load_experiment(experiment or DEFAULT_EXPERIMENT, project.root)
    pack = _pack(project, settings, dataset, prompts)
    size = settings.serving.batch_size if batch_size is None else batch_size
    screen = Screen(as_json)
    resumable = interruptible("run the same command again: it goes on after the last batch")
    with resumable, player(provider, project, settings, model, adapter, size, screen.line) as playing:
        opened = None
        sealed = is_sealed(cases)
        if sealed:
            require_known_base(f"--manifest {manifest}", playing.identity, known_bases(project))
        if sealed and not plays_freely(playing.identity):
            options = {"--model": model, "--dataset": dataset, "--prompts": prompts, "--batch-size": batch_size}
            given = [name for name, value in options.items() if value is not None]
            opening = require_opened(project, settings if experiment else None, manifest, playing.identity, given)
            opened = opening.adapter_sha256
            screen.line(f"opening {opening.ordinal} of sealed set {opening.sealed_set}, in the ledger", "yellow")
        with screen.progress() as progress:
            result = play(out, manifest, pack, playing, batch_size=size, opened_for_adapter=opened, progress=progress)
    _show(screen, result.summary)
    screen.line(f"rows and summary are in {out}")
    screen.json(result.summary)


def _pack(project: Project, settings: Experiment, dataset: Path | None, prompts: Path | None) -> PromptPack:
    """The prompts' texts: those of the rows that the model was trained on come first."""
    from arena_pipeline.arena.prompts import PromptPack
    from arena_pipeline.sft.loading import load_dataset

    if dataset is not None and prompts is not None:
        raise ConfigError("--dataset and --prompts: give one of them, both say what the prompts' texts are")
    if prompts is not None:
        return PromptPack.load(prompts)
    own = project.root / settings.dataset.directory
    if dataset is None and not own.is_dir():
        return PromptPack.load(project.root / settings.dataset.prompts)
    return load_dataset(own if dataset is None else dataset).prompts


def _show(screen: Screen, summary: Mapping[str, Any]) -> None:
    def row(name: str, figures: Mapping[str, Any]) -> tuple[object, ...]:
        low, high = figures["regret_interval"]
        return (
            name,
            f"{figures['strict_action_rate']:.4f}",
            f"{figures['optimal_rate']:.4f}",
            f"{figures['mean_reward']:.3f}",
            f"{figures['mean_regret']:.3f}",
            f"{low:.3f} .. {high:.3f}",
            f"{figures['non_redundant_rate']:.4f}",
        )

    screen.table(
        ("messages", "strict actions", "optimal", "reward", "regret", "interval of regret", "not redundant"),
        [row(name, figures) for name, figures in summary["conditions"].items()],
        title=f"{summary['manifest']}, {summary['cases']} cases",
    )
    messages = summary["messages"]
    screen.line(
        f"strict messages {messages['strict_message_rate']:.4f}, empty ones {messages['empty_share']:.4f}; "
        f"same choice in three display orders {summary['order_consistency']:.4f}"
    )
    effects = (
        f"{name.replace('_', ' ')} {figures['mean']:+.3f} [{', '.join(f'{end:+.3f}' for end in figures['interval'])}]"
        for name, figures in summary["effects"].items()
    )
    screen.line(f"reward: {'; '.join(effects)}")
