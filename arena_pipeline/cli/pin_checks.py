"""Every pin compared with what is there, one result each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from arena_pipeline.arena.manifests import MANIFESTS, manifest_sha256
from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.cli.project import Project
from arena_pipeline.errors import ArenaError, IntegrityError
from arena_pipeline.experiments import load_experiments
from arena_pipeline.progress import Progress
from arena_pipeline.provenance.hashing import sha256_file, tree_sha256
from arena_pipeline.provenance.pins import PinKind, Pins, RecordedPins, TreeKind
from arena_pipeline.provenance.trees import NO_FILE, hash_tree
from arena_pipeline.resources.locations import GATES_FILE
from arena_pipeline.sft.loading import load_dataset
from arena_pipeline.sft.pinned import expect_pinned, pinned_name

Status = Literal["equal", "different", "absent", "not pinned"]


@dataclass(frozen=True)
class PinCheck:
    """One pin and what was found for it; ``advice`` says what to do where they differ."""

    pin: str
    status: Status
    file: str
    expected: str | None = None
    found: str | None = None
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The check as JSON."""
        return asdict(self)

    def line(self) -> str:
        """The check as one line."""
        if self.status == "different":
            found = f"expected {self.expected}, found {self.found}" if self.expected else self.advice
            advice = f"; {self.advice}" if self.expected and self.advice else ""
            return f"different   {self.pin}: {self.file}: {found}{advice}"
        if self.status == "absent":
            return f"absent      {self.pin}: {self.file} is not there; expected {self.expected}"
        return f"{self.status:<11} {self.pin}: {self.found} ({self.file})"


def check_manifests(pins: Pins) -> Iterator[PinCheck]:
    """Every manifest that there is or that is pinned; one that has no pin, or no cases, differs."""
    for name in sorted({*MANIFESTS, *pins.manifests}):
        cases = MANIFESTS.get(name)
        found = manifest_sha256(cases) if cases else "no such manifest"
        expected = pins.manifests.get(name, "a pin")
        status: Status = "equal" if found == expected else "different"
        yield PinCheck(f"manifests.{name}", status, f"{len(cases or ())} cases", expected, found)


def check_pins(project: Project, progress: Progress) -> Iterator[PinCheck]:
    """Every pin of data/pins.toml and every recorded hash, each compared with content."""
    pins = Pins.load(project.pins_file)
    steps = ("prompt packs", "manifests", "gate policies", "base models", "datasets")
    found = (_packs(project, pins), check_manifests(pins), _gates(project, pins), _models(project, pins))
    for done, (step, checks) in enumerate(zip(steps, (*found, _datasets(project, pins)), strict=True)):
        progress(f"verifying {step}", done, len(steps))
        yield from checks


def _packs(project: Project, pins: Pins) -> Iterator[PinCheck]:
    seen = set()
    for path in sorted((project.root / "data" / "prompts").iterdir()):
        if path.suffix not in (".toml", ".json"):
            continue
        shown = project.shown(path)
        try:
            pack = PromptPack.load(path)
        except ArenaError as error:
            expected = pins.prompt_packs.get(path.stem)
            yield PinCheck(f"prompt_packs.{path.stem}", "different", shown, expected, "no prompt pack", str(error))
            seen.add(path.stem)
            continue
        # A file named after a pinned version must hold that version, whatever it says that it holds.
        name = path.stem if path.stem in pins.prompt_packs else pack.version
        seen.add(name)
        yield _compared("prompt_packs", name, pins, pack.sha256, shown)
    for name in sorted(pins.prompt_packs.keys() - seen):
        expected = pins.prompt_packs[name]
        yield PinCheck(f"prompt_packs.{name}", "different", "data/prompts", expected, NO_FILE, "restore its file")


def _gates(project: Project, pins: Pins) -> Iterator[PinCheck]:
    path = project.root / GATES_FILE
    found = sha256_file(path) if path.is_file() else NO_FILE
    names = [name for name, expected in pins.gates.items() if expected == found]
    if names:
        yield _compared("gates", names[0], pins, found, project.shown(path))
        return
    expected = " or ".join(pins.gates.values()) or "a pin"
    advice = "restore the committed file, or pin this one as a new version"
    yield PinCheck("gates", "different", project.shown(path), expected, found, advice)


def _models(project: Project, pins: Pins) -> Iterator[PinCheck]:
    places = {experiment.base_model.name: experiment.base_model.path for experiment in load_experiments(project.root)}
    for name in sorted({*places, *pins.base_models}):
        place = places.get(name, f"data/base_models/{name}")
        directory = project.root / place
        pin = pins.base_models.get(name)
        if not directory.is_dir():
            if pin is not None:
                yield PinCheck(f"base_models.{name}", "absent", place, pin.sha256)
            continue
        try:
            files = hash_tree(directory)
        except IntegrityError as error:
            yield _broken(f"base_models.{name}", place, error)
            continue
        pinned = partial(_expect_model, pins, name, files, directory)
        yield _tree("base_models", name, pinned, place, tree_sha256(files), files, project)


def _expect_model(pins: Pins, name: str, files: dict[str, str], directory: Path) -> bool:
    pins.expect_files("base_models", name, files, directory)
    return pins.expect("base_models", name, tree_sha256(files), directory, allow_new=True)


def _datasets(project: Project, pins: Pins) -> Iterator[PinCheck]:
    seen: set[tuple[str, str]] = set()
    choices = [experiment.dataset for experiment in load_experiments(project.root)]
    for place, *seeds in sorted({(choice.directory, choice.num_seeds, choice.start_seed) for choice in choices}):
        directory = project.root / place
        if not directory.is_dir():
            continue
        try:
            dataset = load_dataset(directory)
        except IntegrityError as error:
            yield _broken(f"datasets ({place})", place, error)
            continue
        except ArenaError as error:
            yield PinCheck(f"datasets ({place})", "different", place, advice=str(error))
            continue
        name = pinned_name(dataset, *seeds)
        if (place, name) in seen:
            continue
        seen.add((place, name))
        pinned = partial(expect_pinned, pins, name, dataset, directory)
        yield _tree("datasets", name, pinned, place, dataset.content_sha256, dataset.file_hashes, project)
    for name in sorted(pins.datasets.keys() - {name for _, name in seen}):
        yield PinCheck(f"datasets.{name}", "absent", "a dataset directory", pins.datasets[name].content_sha256)


def _tree(
    kind: TreeKind,
    name: str,
    expect_pin: Callable[[], bool],
    place: str,
    sha256: str,
    files: Mapping[str, str],
    project: Project,
) -> PinCheck:
    """A directory against its pin, then file by file against its recorded first load."""
    directory = project.root / place
    try:
        pinned = expect_pin()
        known = RecordedPins(project.recorded_pins).compare(kind, place, name, sha256, files, directory)
    except IntegrityError as error:
        return _broken(f"{kind}.{name}", project.shown(Path(error.file)), error)
    where = f"{place}, as first loaded" if known else place
    return PinCheck(f"{kind}.{name}", "equal" if pinned or known else "not pinned", where, sha256, sha256)


def _compared(kind: PinKind, name: str, pins: Pins, found: str, file: str) -> PinCheck:
    expected: str | None = getattr(pins, kind).get(name)
    if expected is None:
        return PinCheck(f"{kind}.{name}", "not pinned", file, None, found)
    return PinCheck(f"{kind}.{name}", "equal" if found == expected else "different", file, expected, found)


def _broken(label: str, file: str, error: IntegrityError) -> PinCheck:
    advice = str(error).partition("; ")[2]
    return PinCheck(label, "different", file, error.expected, error.found, advice)
