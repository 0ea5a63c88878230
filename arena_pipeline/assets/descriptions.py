"""Tables and plots of what an artifact holds, computed from the artifact's files alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena_pipeline.evaluation.conditions import CONDITIONS
from arena_pipeline.evaluation.runner import ROWS_FILE, SUMMARY_FILE
from arena_pipeline.provenance.artifacts import Artifact
from arena_pipeline.resources.metadata import COLORS, markdown, plot, table
from arena_pipeline.sft.training import RECORD_FILE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATES = ("schema_valid", "supported", "legal", "exact")


def read_rows(artifact: Artifact) -> list[dict[str, Any]]:
    """The rows of an evaluation that an artifact holds, one per case."""
    return [json.loads(line) for line in artifact.read_bytes(ROWS_FILE).splitlines()]


def describe_baselines(artifact: Artifact) -> dict[str, Any]:
    """Each policy's mean reward, mean regret and optimal rate on both manifests."""
    found = {which: artifact.read_json(f"{which}.json") for which in ("sealed", "development")}
    names = ("policy", "mean_reward", "mean_oracle_regret", "optimal_rate")
    rows = [
        {"manifest": body["manifest"], **{name: figures[name] for name in names}}
        for body in found.values()
        for figures in body["policies"]
    ]
    sealed = found["sealed"]["policies"]

    def draw(axes: Axes) -> None:
        axes.barh([body["policy"] for body in sealed], [body["mean_oracle_regret"] for body in sealed], color=COLORS[0])
        axes.invert_yaxis()
        axes.set_xlabel("mean regret")

    return {
        "policies": table(rows),
        "cases": found["sealed"]["cases"],
        "development_cases": found["development"]["cases"],
        "regret": plot("Mean regret on the manifest of the verdict", draw),
    }


def describe_evaluation(artifact: Artifact) -> dict[str, Any]:
    """An evaluation's figures per condition, its paired effects, and the regret of every case."""
    summary = artifact.read_json(SUMMARY_FILE)
    names = ("strict_action_rate", "optimal_rate", "mean_reward", "mean_regret", "non_redundant_rate")
    conditions = [
        {"condition": name, **{key: summary["conditions"][name][key] for key in names}} for name in CONDITIONS
    ]
    effects = [
        {"effect": name, "mean": body["mean"], "low": body["interval"][0], "high": body["interval"][1]}
        for name, body in summary["effects"].items()
    ]
    regrets = [row["plays"]["generated"]["regret"] for row in read_rows(artifact)]

    def draw(axes: Axes) -> None:
        axes.plot(sorted(regrets), drawstyle="steps-mid", color=COLORS[0])
        axes.set_xlabel("case, by regret")
        axes.set_ylabel("regret")

    return {
        "manifest": summary["manifest"],
        "manifest_sha256": summary["manifest_sha256"],
        "cases": summary["cases"],
        "mean_regret": summary["conditions"]["generated"]["mean_regret"],
        "mean_reward": summary["conditions"]["generated"]["mean_reward"],
        "strict_action_rate": summary["conditions"]["generated"]["strict_action_rate"],
        "strict_message_rate": summary["messages"]["strict_message_rate"],
        "order_consistency": summary["order_consistency"],
        "conditions": table(conditions),
        "effects": table(effects),
        "regret_per_case": plot("Regret of every case, messages generated", draw),
    }


def scores_row(name: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """A summary's figures as one row of a table."""
    phases = {f"{phase} {rate}": summary[phase][rate] for phase in ("act", "broadcast") for rate in RATES}
    return {
        "scored": name,
        "examples": summary["examples"],
        "selection_score": summary["selection_score"],
        **phases,
        "unsupported_facts": summary["broadcast"]["unsupported_facts"],
        "cut_at_token_limit": summary["cut_at_token_limit"],
    }


def describe_scores(artifact: Artifact, model: str) -> dict[str, Any]:
    """A scored split's rates by phase, of one of the models that an artifact holds the scores of."""
    summary = artifact.read_json(f"{model}/{SUMMARY_FILE}")

    def draw(axes: Axes) -> None:
        draw_rates(axes, [("ACT", summary["act"]), ("BROADCAST", summary["broadcast"])])

    return {
        "split": summary["split"],
        "examples": summary["examples"],
        "selection_score": summary["selection_score"],
        "schema_valid": summary["schema_valid"],
        "exact": summary["exact"],
        "rates": table([scores_row(summary["split"], summary)]),
        "rates_by_phase": plot(f"Rates on {summary['split']}", draw),
    }


def draw_rates(axes: Axes, bodies: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Bars of the four rates, one colour for each of ``bodies``."""
    width = 0.8 / len(bodies)
    for index, (name, body) in enumerate(bodies):
        places = [position + (index - (len(bodies) - 1) / 2) * width for position in range(len(RATES))]
        axes.bar(places, [body[rate] for rate in RATES], width=width, label=name, color=COLORS[index % len(COLORS)])
    axes.set_xticks(range(len(RATES)), RATES)
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False, fontsize=8)


def describe_training(artifact: Artifact) -> dict[str, Any]:
    """A training run's losses, step by step and at its checkpoints, and what was trained."""
    record = artifact.read_json(RECORD_FILE)
    steps, checkpoints = record["steps"], record["checkpoints"]
    measured = [entry for entry in checkpoints if "validation_loss" in entry]

    def draw(axes: Axes) -> None:
        axes.plot(
            [entry["step"] for entry in steps], [entry["loss"] for entry in steps], color=COLORS[0], label="train"
        )
        if measured:
            losses = [entry["validation_loss"] for entry in measured]
            axes.plot([entry["step"] for entry in measured], losses, "o-", color=COLORS[1], label="validation")
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.legend(frameon=False)

    columns = ("step", "adapter_sha256", "moved", "validation_loss")
    return {
        "steps": len(steps),
        "draws": record["draws"],
        "first_loss": steps[0]["loss"],
        "last_loss": steps[-1]["loss"],
        "what_the_loss_is": record["loss"],
        "trainable_parameters": record["trainable"]["parameters"],
        "parameters": record["trainable"]["of"],
        "checkpoints": table([{name: entry.get(name) for name in columns} for entry in checkpoints]),
        "loss": plot("Loss", draw),
    }


def describe_checkpoint_scores(artifact: Artifact) -> dict[str, Any]:
    """Each checkpoint's rates on validation."""
    names = sorted(name.partition("/")[0] for name in artifact.files if name.endswith(f"/{SUMMARY_FILE}"))
    summaries = [artifact.read_json(f"{name}/{SUMMARY_FILE}") for name in names]
    steps = [summary["step"] for summary in summaries]

    def draw(axes: Axes) -> None:
        lines = [(phase, rate) for phase in ("act", "broadcast") for rate in ("schema_valid", "exact")]
        for color, (phase, rate) in zip(COLORS, lines, strict=False):
            axes.plot(steps, [body[phase][rate] for body in summaries], "o-", color=color, label=f"{phase} {rate}")
        supported = [body["broadcast"]["supported"] for body in summaries]
        axes.plot(steps, supported, "o-", color=COLORS[5], label="broadcast supported")
        axes.set_xlabel("step")
        axes.set_ylim(0, 1.02)
        axes.legend(frameon=False, fontsize=8)

    rows = [scores_row(name, summary) for name, summary in zip(names, summaries, strict=True)]
    return {
        "measured": len(summaries),
        "best_selection_score": max(body["selection_score"] for body in summaries),
        "rates": table(rows),
        "rates_per_checkpoint": plot("Validation by generation, per checkpoint", draw),
    }


def describe_selection(selection: Mapping[str, Any]) -> dict[str, Any]:
    """Which checkpoints were eligible, what the others failed, and which one goes on."""
    candidates = selection["candidates"]

    def draw(axes: Axes) -> None:
        scores = [candidate["selection_score"] for candidate in candidates]
        colors = [COLORS[2] if candidate["eligible"] else COLORS[6] for candidate in candidates]
        axes.bar([str(candidate["step"]) for candidate in candidates], scores, color=colors)
        axes.set_xlabel("step (green: eligible)")
        axes.set_ylabel("selection score")

    rows = [
        {
            "step": candidate["step"],
            "eligible": candidate["eligible"],
            "failures": ", ".join(candidate["failures"]),
            "selection_score": candidate["selection_score"],
            "difference_to_base": candidate["score_difference_to_base"],
        }
        for candidate in candidates
    ]
    return {
        "selected_step": selection["selected_step"],
        "num_eligible": selection["num_eligible"],
        "candidates": table(rows),
        "scores": plot("Selection score per checkpoint", draw),
    }


def describe_comparison(comparisons: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Paired differences with their intervals, on each manifest that was compared."""
    rows = []
    for comparison in comparisons.values():
        figures = {
            **{f"regret {name}": body for name, body in comparison["regret_difference"].items()},
            **{f"reward {name}": body for name, body in comparison["reward_difference"].items()},
            **comparison["effects"],
        }
        rows += [
            {
                "manifest": comparison["manifest"],
                "difference": name,
                "mean": body["mean"],
                "low": body["interval"][0],
                "high": body["interval"][1],
                "p": body["p"],
                "n": body["n"],
            }
            for name, body in figures.items()
        ]

    def draw(axes: Axes) -> None:
        last = [row for row in rows if row["manifest"] == rows[-1]["manifest"]]
        draw_intervals(axes, [(row["difference"], row["mean"], (row["low"], row["high"])) for row in last])

    return {
        "compared": len(comparisons),
        "differences": table(rows),
        "intervals": plot(f"Fine-tuned minus base, and effects of messages: {rows[-1]['manifest']}", draw, (7.0, 4.0)),
    }


def draw_intervals(axes: Axes, rows: Sequence[tuple[str, float, tuple[float, float]]]) -> None:
    """Means with their intervals, one below the other."""
    for position, (_, mean, (low, high)) in enumerate(rows):
        axes.plot([low, high], [position, position], color=COLORS[0], linewidth=2)
        axes.plot([mean], [position], "o", color=COLORS[1])
    axes.axvline(0, color=COLORS[6], linewidth=1)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=8)
    axes.invert_yaxis()


def describe_verdict(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Every gate with figure, threshold and interval, where the model stands, and what the verdict is."""
    gates = verdict["gates"]
    columns = (
        "name",
        "status",
        "count",
        "figure",
        "threshold",
        "n",
        "smallest_detectable_effect",
        "power",
        "diagnosis",
    )
    rows = [{**{name: gate[name] for name in columns}, "interval": _interval_text(gate["interval"])} for gate in gates]
    shown = [gate for gate in gates if gate["interval"] is not None]

    def draw(axes: Axes) -> None:
        draw_intervals(axes, [(gate["name"], gate["figure"], tuple(gate["interval"])) for gate in shown])
        axes.plot([gate["threshold"] for gate in shown], range(len(shown)), "|", color=COLORS[2], markersize=16)

    described: dict[str, Any] = {
        "promoted": verdict["promoted"],
        "coordination_claim": verdict["coordination_claim"],
        "conclusion": verdict["conclusion"],
        "gates": table(rows),
        "notes": markdown("\n".join(f"- {note}" for note in verdict["notes"]) or "none"),
        "gate_intervals": plot("Gates: figure, interval and threshold (green)", draw, (7.0, 3.6)),
    }
    if verdict["standing"]:
        described["standing"] = table(verdict["standing"])
    return described


def _interval_text(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.4f} .. {interval[1]:.4f}"
