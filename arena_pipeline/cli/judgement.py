"""`arena compare`, `arena select` and `arena gates`: statistics, selection and verdict from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_pipeline.cli.experiments import ExperimentOption
from arena_pipeline.cli.project import DEFAULT_EXPERIMENT, find_project
from arena_pipeline.cli.screen import JsonOption, Screen, interruptible

if TYPE_CHECKING:
    from arena_pipeline.evaluation.rows import CaseRow


def add_to(app: typer.Typer) -> None:
    """Add the three commands."""
    app.command("compare", epilog="Example: arena compare storage/base storage/sft")(compare_evaluations)
    app.command("select", epilog="Example: arena select scores/*/summary.json --base base/summary.json --json")(
        select_checkpoint
    )
    app.command("gates", epilog="Example: arena gates --experiment tiny-cpu")(show_gates)


def compare_evaluations(
    base: Annotated[Path, typer.Argument(help="Evaluation directory of the base model.", metavar="BASE_DIR")],
    tuned: Annotated[Path, typer.Argument(help="Evaluation directory of the fine-tuned model.", metavar="SFT_DIR")],
    as_json: JsonOption = False,
) -> None:
    """Compare two evaluations case by case, both computed again from their saved responses.

    They may differ in nothing but the adapter, and the base has none. Intervals are at 95%. On a sealed manifest they
    are at the level of the adapter's opening in the ledger, the widest where it has several.
    """
    from arena_pipeline.evaluation.comparison import compare
    from arena_pipeline.evaluation.runner import recompute
    from arena_pipeline.evaluation.statistics import ALPHA

    base_rows, tuned_rows = recompute(base).rows, recompute(tuned).rows
    result = compare(base_rows, tuned_rows, opening_of(tuned_rows))
    screen = Screen(as_json)
    rows = [(f"regret, {name}", figures) for name, figures in result["regret_difference"].items()]
    rows += [(f"reward, {name}", figures) for name, figures in result["reward_difference"].items()]
    rows += [(f"{name.replace('_', ' ')} (SFT)", figures) for name, figures in result["effects"].items()]
    rows += [(f"regret, {name} (SFT)", figures) for name, figures in result["rotation_regret_increase"].items()]
    screen.table(
        ("difference", "mean", "interval", "p", "n", "could have shown"),
        [
            (
                name,
                f"{figures['mean']:+.3f}",
                f"{figures['interval'][0]:+.3f} .. {figures['interval'][1]:+.3f}",
                f"{figures['p']:.4f}",
                figures["n"],
                f"{figures['smallest_detectable_effect']:.3f}",
            )
            for name, figures in rows
        ],
        title=f"SFT - base on {result['manifest']}, {result['cases']} cases",
    )
    screen.line(f"intervals at {1 - ALPHA / result['opening']:.2%}, the level of opening {result['opening']}")
    screen.json(result)


def opening_of(rows: Sequence[CaseRow]) -> int:
    """Which opening of a sealed set these rows are of, by their adapter; 1 where nothing sealed was opened for it."""
    from arena_pipeline.evaluation.comparison import cases_of
    from arena_pipeline.evaluation.runner import is_sealed
    from arena_pipeline.provenance.ledger import Ledger
    from arena_pipeline.resources.locations import ledger_address

    adapter = rows[0]["model"].get("adapter_sha256")
    if adapter is None or not is_sealed(cases_of(rows)):
        return 1
    find_project().export()
    openings = Ledger(ledger_address()).openings()
    return max((opening.ordinal for opening in openings if opening.adapter_sha256 == adapter), default=1)


def select_checkpoint(
    summaries: Annotated[
        list[Path], typer.Argument(help="Validation summary.json of each checkpoint.", metavar="FILE...")
    ],
    base: Annotated[
        Path | None, typer.Option(help="Validation summary.json of the untouched base model.", metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Select a checkpoint by its behaviour on validation; exits 1 where none is eligible."""
    from arena_pipeline.sft.selection import read_candidate, select

    result = select([read_candidate(path) for path in summaries], read_candidate(base) if base else None)
    screen = Screen(as_json)
    rows = [_row(candidate, result["selected_step"]) for candidate in result["candidates"]]
    screen.table(("step", "score", "to base", "ACT exact", "BROADCAST exact", "outcome"), rows)
    selected = result["selected_step"]
    if selected is None:
        screen.line(f"no checkpoint is eligible; the best-scoring one is of step {result['best_scoring_step']}", "red")
    else:
        screen.line(f"selected: step {selected}, among {result['num_eligible']} eligible", "green")
    screen.json(result)
    if selected is None:
        raise typer.Exit(1)


def _row(candidate: dict[str, Any], selected: int | None) -> tuple[object, ...]:
    outcome = "selected" if candidate["step"] == selected else "eligible"
    to_base = candidate.get("score_difference_to_base")
    return (
        candidate["step"],
        f"{candidate['selection_score']:.4f}",
        "" if to_base is None else f"{to_base:+.4f}",
        f"{candidate['act']['exact']:.4f}",
        f"{candidate['broadcast']['exact']:.4f}",
        f"fails {', '.join(candidate['failures'])}" if candidate["failures"] else outcome,
    )


def show_gates(experiment: ExperimentOption = DEFAULT_EXPERIMENT, as_json: JsonOption = False) -> None:
    """Compute an experiment's verdict again, from its saved responses up; exits 1 where it is not promoted.

    A saved summary, table or verdict that does not follow from them is an error that names it.
    """
    from arena_pipeline.cli.verdicts import recomputed_verdict
    from arena_pipeline.evaluation.verdict_table import render_verdict

    screen = Screen(as_json)
    with screen.progress() as progress, interruptible("run the same command again"):
        verdict = recomputed_verdict(find_project(), experiment, progress)
    screen.show(render_verdict(verdict))
    screen.json(verdict)
    if not verdict["promoted"]:
        raise typer.Exit(1)
