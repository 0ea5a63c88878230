"""Experiment files: all that ship load; a mistake is told by file, key, what was found and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.assets.sealed import refuse_standard_seeds
from arena_pipeline.errors import ConfigError, SealedSetRefused
from arena_pipeline.experiments import (
    EXPERIMENTS,
    STANDARD_SEEDS,
    Experiment,
    Found,
    check_machine,
    list_experiments,
    load_experiment,
    measure_machine,
    slow_settings,
)
from arena_pipeline.experiments.preflight import parse_cpu_flags, parse_gpu_list
from arena_pipeline.provenance.config_files import Config
from arena_pipeline.provenance.hashing import sha256_json
from arena_pipeline.provenance.pins import Pins
from arena_pipeline.sft.builder import DEFAULT_SEEDS
from arena_pipeline.sft.labels import targeted_seed_ranges

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = list_experiments(ROOT / EXPERIMENTS)
# A text of its own, so that tuning the experiments that ship changes nothing here.
TINY = """\
description = "The whole lineage on the embedded base model, on two CPU cores."

[dataset]
directory = "data/arena_sft_stage1"
prompts = "data/prompts/arena-v2-open.toml"

[base_model]
path = "data/base_models/arena-tiny"
name = "arena-tiny"

[recipe]
rank = 32
alpha = 64
dropout = 0.05
target_modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
max_length = 1024
learning_rate = 4e-3
weight_decay = 0.01
warmup_steps = 15
effective_batch_size = 32
micro_batch_size = 8
epochs = 2
max_grad_norm = 1.0
gradient_checkpointing = false
seed = 0
checkpoints = 8
precision = "bfloat16"
action_loss_weight = 8

[recipe.mixture]
broadcast = 0.60
action_common = 0.31
action_rare = 0.09

[smoke]
steps = 200
learning_rate = 4e-3
minimum_schema_valid = 0.99

[serving]
backend = "transformers"
batch_size = 64
dtype = "float32"
device = "cpu"

[evaluation]
sealed_manifest = "arena-frozen-60"
dev_manifest = "arena-dev-600"

[machine]
gpu = false
minimum_memory_gib = 6
minimum_disk_gib = 2
"""
MICRO = (ROOT / EXPERIMENTS / "micro.toml").read_text()


def load(tmp_path: Path, text: str, name: str = "mine") -> Experiment:
    (tmp_path / EXPERIMENTS).mkdir(parents=True, exist_ok=True)
    (tmp_path / EXPERIMENTS / f"{name}.toml").write_text(text)
    return load_experiment(name, tmp_path)


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_the_experiments_that_ship() -> None:
    assert SHIPPED == ["micro", "stage1", "tiny-cpu"]
    manifests = Pins.load(ROOT / "data" / "pins.toml").manifests
    for name in SHIPPED:
        experiment = load_experiment(name, ROOT)
        assert experiment.name == name
        assert experiment.result is (name != "micro")
        assert (ROOT / experiment.dataset.prompts).is_file()
        assert {experiment.evaluation.sealed_manifest, experiment.evaluation.dev_manifest} <= set(manifests)


def test_stage1_is_the_recipe_of_the_specification() -> None:
    experiment = load_experiment("stage1", ROOT)
    recipe = experiment.recipe
    assert experiment.base_model.name == "Qwen3-4B-Instruct-2507"
    assert (recipe.rank, recipe.alpha, recipe.dropout, recipe.max_length) == (32, 64, 0.05, 2048)
    assert {module.removesuffix("_proj") for module in recipe.target_modules} == set("qkvo") | {"gate", "up", "down"}
    assert (recipe.optimizer, recipe.learning_rate, recipe.weight_decay) == ("adamw", 1e-4, 0.01)
    assert (recipe.schedule, recipe.warmup_ratio, recipe.warmup_steps) == ("cosine", 0.03, None)
    assert (recipe.effective_batch_size, recipe.epochs, recipe.max_grad_norm) == (32, 2, 1.0)
    assert (recipe.gradient_checkpointing, recipe.action_loss_weight, recipe.checkpoints) == (True, 1, 8)
    assert recipe.draws(4958) == 2 * 4958
    shares = recipe.mixture
    assert (shares.broadcast, shares.action_common, shares.action_rare) == (0.60, 0.31, 0.09)
    assert (experiment.machine.gpu, experiment.machine.minimum_disk_gib * 2**30 >= 80e9) == (True, True)


def test_the_smoke_has_the_recipe_of_the_run() -> None:
    experiment = load_experiment("tiny-cpu", ROOT)
    smoke = experiment.smoke.recipe(experiment.recipe)
    different = {key for key, value in experiment.recipe if getattr(smoke, key) != value}
    assert different - {"epochs"} == {"steps", "checkpoints", "learning_rate"}
    assert smoke.draws(256) == experiment.smoke.steps * experiment.recipe.effective_batch_size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rank = 32", "rank = 0"), "recipe.rank: found 0; allowed: greater than or equal to 1"),
        (("max_length = 1024", "max_length = 2049"), "recipe.max_length: found 2049; allowed: less than or equal to 2"),
        (("rank = 32", 'rank = "32"'), "recipe.rank: found '32'; allowed: a valid integer"),
        (("rank = 32", "rank = true"), "recipe.rank: found True; allowed: a valid integer"),
        (("rank = 32", "rank = 32.0"), "recipe.rank: found 32.0; allowed: a valid integer"),
        (("rank = 32", "ranks = 32"), "recipe.ranks: unknown key (did you mean rank?); allowed: action_loss_weight, "),
        (("rank = 32\n", ""), "recipe.rank: missing; add it: LoRA rank."),
        (("[smoke]", "[smokes]"), "smokes: unknown key (did you mean smoke?)"),
        (("[smoke]", "[smokes]"), "smoke: missing; add it: The overfit smoke before it."),
        (("learning_rate = 4e-3\nweight", "learning_rate = nan\nweight"), "recipe.learning_rate: found nan; allowed: "),
        (("learning_rate = 4e-3\nweight", "learning_rate = inf\nweight"), "recipe.learning_rate: found inf; allowed: "),
        (("alpha = 64", "alpha = inf"), "recipe.alpha: found inf; allowed: a finite number"),
        (('"q_proj", ', '"q_pro", '), "recipe.target_modules.0: found 'q_pro'; allowed: 'q_proj', 'k_proj'"),
        (('"q_proj", ', '"k_proj", '), "recipe: target_modules: found k_proj, k_proj, v_proj"),
        (
            ("epochs = 2", "epochs = 2\nsteps = 310"),
            "recipe: found steps and epochs; allowed: exactly one of steps, epo",
        ),
        (("epochs = 2", ""), "recipe: found neither; allowed: exactly one of steps, epochs"),
        (("warmup_steps = 15", ""), "recipe: found neither; allowed: exactly one of warmup_steps, warmup_ratio"),
        (("warmup_steps = 15", "warmup_steps = 15\nwarmup_ratio = 0.1"), "recipe: found warmup_steps and warmup_ratio"),
        (
            ("micro_batch_size = 8", "micro_batch_size = 7"),
            "recipe: micro_batch_size: found 7; allowed: a divisor of ef",
        ),
        (
            ("epochs = 2", "steps = 15"),
            "recipe: steps: found 15; allowed: more than the 15 steps of warm-up and at leas",
        ),
        (("broadcast = 0.60", "broadcast = 0.61"), "recipe.mixture: found shares that add up to 1.01; allowed: 1"),
        (("action_loss_weight = 8", "action_loss_weight = 0.5"), "recipe.action_loss_weight: found 0.5; allowed: "),
        (
            ('precision = "bfloat16"', 'precision = "float16"'),
            "recipe.precision: found 'float16'; allowed: 'float32' or",
        ),
        (
            ("\nbatch_size = 64", "\nbatch_size = 64\nmax_new_tokens = 225"),
            "serving.max_new_tokens: found 225; allowed: ",
        ),
        (('device = "cpu"', 'device = "cuda"'), "machine.gpu: found false; allowed: true where serving.device is cuda"),
        (("gpu = false", "gpu = true"), "machine.minimum_gpu_memory_gib: found 0; allowed: above 0 where gpu is true"),
        (("steps = 200", "steps = 15"), "smoke.steps: found 15; allowed: more than recipe.warmup_steps 15"),
        (
            ('"data/arena_sft_stage1"', '"/data/x"'),
            "dataset.directory: found '/data/x'; allowed: a path inside the proj",
        ),
        (('"data/arena_sft_stage1"', '"../x"'), "dataset.directory: found '../x'; allowed: a path inside the project"),
        (('"data/arena_sft_stage1"', '"data/x/"'), "dataset.directory: found 'data/x/'; allowed: a path inside the pr"),
        (
            ('"arena-dev-600"', '"arena-dev-60"'),
            "evaluation.dev_manifest: found 'arena-dev-60'; allowed: arena-frozen-",
        ),
        (
            ('"arena-dev-600"', '"arena-eval-600"'),
            "evaluation.dev_manifest: found arena-eval-600; allowed: arena-dev, ",
        ),
        # A result is measured in full.
        (("checkpoints = 8", "checkpoints = 7"), "recipe.checkpoints: found 7; allowed for a result: 8 or more"),
        (
            ("minimum_schema_valid = 0.99", "minimum_schema_valid = 0.98"),
            "smoke.minimum_schema_valid: found 0.98; allo",
        ),
        (("steps = 200", "steps = 200\nrows = 128"), "smoke.rows: found 128; allowed for a result: 256 or more"),
        (
            ('"arena-frozen-60"', '"arena-dev"'),
            "evaluation.sealed_manifest: found arena-dev; allowed for a result: are",
        ),
        (("[machine]", "[machine]\n[evaluation.x]"), "evaluation.x: unknown key"),
        (('dev_manifest = "', 'limit = 2\ndev_manifest = "'), "evaluation.limit: found 2; a result plays all cases: "),
        (
            ('dev_manifest = "', 'random_repeats = 31\ndev_manifest = "'),
            "evaluation.random_repeats: found 31; allowed ",
        ),
        (("[dataset]", 'name = "x"\n[dataset]'), "name: found 'x'; an experiment is named by its file, leave it out"),
        (("[dataset]", "[dataset"), "not a TOML file (Expected ']' at the end of a table declaration (at line 3"),
    ],
)
def test_a_mistake_is_told_by_file_key_found_and_allowed(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, changed(TINY, change))
    lines = str(caught.value).splitlines()
    assert any(line.startswith(f"{EXPERIMENTS}/mine.toml: {message}") for line in lines), lines


def test_every_mistake_gets_a_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, changed(TINY, ("rank = 32", "rank = 0"), ("steps = 200", "step = 200"), ("gpu = false", "")))
    keys = [line.split(": ")[1] for line in str(caught.value).splitlines()]
    assert keys == ["recipe.rank", "smoke.steps", "smoke.step", "machine.gpu"]


def test_a_rehearsal_never_names_a_sealed_manifest(tmp_path: Path) -> None:
    assert load(tmp_path, MICRO).evaluation.limit == 2
    for sealed in ("arena-frozen-60", "arena-eval-600"):
        with pytest.raises(ConfigError, match=f"sealed_manifest: found {sealed}; allowed where result is false"):
            load(tmp_path, changed(MICRO, ('"arena-dev"', f'"{sealed}"')))
    standard = load_experiment("tiny-cpu", ROOT).dataset
    rehearsal = load_experiment("micro", ROOT).dataset
    assert rehearsal.directory != standard.directory
    assert rehearsal.start_seed >= standard.start_seed + standard.num_seeds


@pytest.mark.parametrize("seeds", [(0, 1), (1023, 1), (900, 5_000_000), (5_005_999, 1), (6_000_400, 512)])
def test_a_rehearsal_never_builds_rows_of_the_standard_seeds(tmp_path: Path, seeds: tuple[int, int]) -> None:
    start, number = seeds
    changes = (("start_seed = 100_000", f"start_seed = {start}"), ("num_seeds = 128", f"num_seeds = {number}"))
    with pytest.raises(ConfigError, match=rf"dataset.start_seed: found seeds {start} to {start + number - 1}; allowed"):
        load(tmp_path, changed(MICRO, *changes))


def test_the_standard_seeds_are_those_of_the_standard_build() -> None:
    assert [range(DEFAULT_SEEDS), *targeted_seed_ranges(0)] == list(STANDARD_SEEDS)
    for seed in (1024, 4_999_000, 5_006_000, 6_000_512):
        refuse_standard_seeds("mine", [seed])
    for standard in STANDARD_SEEDS:
        for seed in (standard[0], standard[-1]):
            with pytest.raises(SealedSetRefused, match=f"result is false, but test rows are of seed {seed}, which is"):
                refuse_standard_seeds("mine", [100_000, seed])


def test_experiments_are_found_by_name_or_by_path(tmp_path: Path) -> None:
    mine = load(tmp_path, TINY)
    assert load_experiment(tmp_path / EXPERIMENTS / "mine.toml", tmp_path) == mine
    assert load_experiment(f"{EXPERIMENTS}/mine.toml", tmp_path) == mine
    with pytest.raises(ConfigError, match=r"experiment other: no file data/experiments/other.toml; there are: mine"):
        load_experiment("other", tmp_path)
    with pytest.raises(ConfigError, match=r"name: found 'With Space'; allowed: "):
        load(tmp_path, TINY, name="With Space")
    assert list_experiments(tmp_path / EXPERIMENTS) == ["With Space", "mine"]


def test_identity_is_all_but_name_description_and_layout(tmp_path: Path) -> None:
    first = load(tmp_path, TINY)
    described = changed(TINY, ("The whole lineage", "All of it"))
    moved = '[recipe]\nkind = "lora"\nmax_length = 1_024 # tokens'
    reordered = changed(described, ("max_length = 1024\n", ""), ("[recipe]", moved))
    second = load(tmp_path, reordered, name="other")
    assert second.identity == first.identity
    content = first.resolved()
    del content["name"], content["description"]
    assert first.identity == sha256_json(content)
    assert (second.name, first.name) == ("other", "mine")


def leaves(config: Config, prefix: str = "") -> Iterator[str]:
    for key, value in config:
        if isinstance(value, Config):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def with_other(config: Any, place: str) -> Any:
    """The same configuration with another value of the same kind in one place."""
    key, _, rest = place.partition(".")
    value = getattr(config, key)
    other: Any
    if rest:
        other = with_other(value, rest)
    elif isinstance(value, bool):
        other = not value
    elif isinstance(value, tuple):
        other = value[:-1]
    else:
        other = 3 if value is None else value + type(value)(1)
    return config.model_copy(update={key: other})


LEAVES = [place for place in leaves(load_experiment("tiny-cpu", ROOT)) if place not in ("name", "description")]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("place", LEAVES)
def test_every_value_is_part_of_the_identity_and_of_its_slice(place: str) -> None:
    experiment = load_experiment("tiny-cpu", ROOT)
    other = with_other(experiment, place)
    assert other.identity != experiment.identity
    section = place.partition(".")[0]
    for key in {section, place}:
        assert other.slice(key) != experiment.slice(key)
        assert list(experiment.slice(key)) == [key]
    unrelated = "machine" if section != "machine" else "recipe"
    assert other.slice(unrelated) == experiment.slice(unrelated)


def test_a_slice_of_nothing_is_refused() -> None:
    experiment = load_experiment("tiny-cpu", ROOT)
    with pytest.raises(KeyError):
        experiment.slice("recipe.ranks")
    assert experiment.slice("serving.dtype", "result") == {"serving.dtype": "float32", "result": True}


PLENTY = Found(memory_gib=64, free_disk_gib=200, gpus=(("small", 8), ("NVIDIA RTX A6000", 47.99)))


@pytest.mark.parametrize(
    ("machine", "unmet"),
    [
        (PLENTY, []),
        (Found(19.9, 200, PLENTY.gpus), ["memory"]),
        (Found(64, 74.9, PLENTY.gpus), ["free disk space"]),
        (Found(64, 200, (("small", 43.9),)), ["GPU"]),
        (Found(0, 0, ()), ["memory", "free disk space", "GPU"]),
    ],
)
def test_the_machine_is_compared_with_the_experiments_needs(tmp_path: Path, machine: Found, unmet: list[str]) -> None:
    experiment = load_experiment("stage1", ROOT)
    base = tmp_path / experiment.base_model.path
    base.mkdir(parents=True)
    (base / "config.json").write_text("{}")
    checks = check_machine(experiment, tmp_path, machine)
    assert [check.name for check in checks] == ["memory", "free disk space", "GPU", "base model"]
    assert [check.name for check in checks if not check.ok] == unmet
    (base / "config.json").unlink()
    assert [check.name for check in check_machine(experiment, tmp_path, machine) if not check.ok] == [
        *unmet,
        "base model",
    ]


def test_an_experiment_without_gpu_does_not_ask_for_one(tmp_path: Path) -> None:
    checks = check_machine(load_experiment("tiny-cpu", ROOT), tmp_path, Found(64, 200))
    assert [check.name for check in checks] == ["memory", "free disk space", "base model"]


def test_this_machine_can_be_measured(tmp_path: Path) -> None:
    found = measure_machine(tmp_path / "storage" / "not there yet")
    assert found.memory_gib > 0.5
    assert found.free_disk_gib > 0


def test_gpus_are_read_from_the_drivers_list() -> None:
    listing = "NVIDIA RTX A6000, 49140\nNVIDIA A100, 80GB, 81920\nNVIDIA H200 MIG, [N/A]\n\n"
    assert parse_gpu_list(listing) == (("NVIDIA RTX A6000", 49140 / 1024), ("NVIDIA A100, 80GB", 80.0))
    assert parse_gpu_list("No devices were found\n") == ()


OLD_CPU = "processor\t: 0\nmodel name\t: An old CPU\nflags\t\t: fpu sse2 avx2 avx512f\n\nprocessor\t: 1\n"


def test_what_a_cpu_can_do_is_read_from_its_description() -> None:
    assert parse_cpu_flags(OLD_CPU) == {"fpu", "sse2", "avx2", "avx512f"}
    assert parse_cpu_flags("processor\t: 0\nFeatures\t: fp asimd bf16\n") == {"fp", "asimd", "bf16"}
    assert parse_cpu_flags("") == frozenset()


@pytest.mark.parametrize(
    ("device", "machine", "noted"),
    [
        ("cpu", Found(8, 8, (), parse_cpu_flags(OLD_CPU)), True),
        ("cpu", Found(8, 8, PLENTY.gpus, parse_cpu_flags(OLD_CPU)), True),
        ("auto", Found(8, 8, (), parse_cpu_flags(OLD_CPU)), True),
        ("auto", Found(8, 8, PLENTY.gpus, parse_cpu_flags(OLD_CPU)), False),
        ("cuda", Found(8, 8, PLENTY.gpus, parse_cpu_flags(OLD_CPU)), False),
        ("cpu", Found(8, 8, (), frozenset({"avx2", "avx512_bf16"})), False),
        ("cpu", Found(8, 8, (), frozenset({"avx2", "amx_bf16"})), False),
        ("cpu", Found(8, 8, (), frozenset({"asimd", "bf16"})), False),
        # A system that does not say what its CPU can do.
        ("cpu", Found(8, 8), False),
    ],
)
def test_bfloat16_is_noted_where_a_cpu_would_imitate_it(
    tmp_path: Path, device: str, machine: Found, noted: bool
) -> None:
    gpu = ("gpu = false", "gpu = true\nminimum_gpu_memory_gib = 1")
    text = changed(TINY, ('device = "cpu"', f'device = "{device}"'), *([gpu] if device == "cuda" else []))
    notes = slow_settings(load(tmp_path, text), machine)
    assert [note.partition(":")[0] for note in notes] == (["recipe.precision"] if noted else [])
    both = load(tmp_path, changed(text, ('dtype = "float32"', 'dtype = "bfloat16"')))
    assert len(slow_settings(both, machine)) == (2 if noted else 0)
    neither = load(tmp_path, changed(text, ('precision = "bfloat16"', 'precision = "float32"')))
    assert slow_settings(neither, machine) == []
