"""The artifact store: equal work is found again, and nothing is used that is not byte for byte what was committed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena_pipeline.errors import ArenaError, ArtifactError, IntegrityError, LockHeld
from arena_pipeline.provenance.artifacts import Artifact, ArtifactStore, stage_key
from arena_pipeline.provenance.hashing import sha256_bytes, sha256_json

WORK: dict[str, Any] = {"inputs": {"dataset": "0" * 64}, "config": {"rank": 32}, "code_version": "1"}
STAGE = "lora_checkpoints"
KEY = stage_key(STAGE, **WORK)
FILES = {"adapter/weights.bin": bytes(range(256)), "metrics.json": b'{"loss": 0.069}\n', "empty.txt": b""}


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "a store, with spaces" / "artifacts")


def write(directory: Path, files: dict[str, bytes] | None = None) -> None:
    for name, data in (FILES if files is None else files).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def commit(store: ArtifactStore, stage: str = STAGE, files: dict[str, bytes] | None = None, **work: Any) -> Artifact:
    work = WORK | work
    key = stage_key(stage, **work)
    with store.work(stage, key) as scratch:
        write(scratch / "result", files)
        (scratch / "not part of the result").write_text("x")
        return store.commit(stage, key, scratch / "result", **work)


def test_a_committed_result_is_found_again(store: ArtifactStore) -> None:
    assert store.find(STAGE, KEY) is None
    made = commit(store)
    found = store.find(STAGE, KEY)
    assert found == made == commit(store)
    assert made.files == {name: sha256_bytes(data) for name, data in FILES.items()}
    assert made.sha256 == sha256_json(made.files)
    assert (made.stage, made.key) == (STAGE, KEY)
    assert made.provenance is not None
    assert (made.provenance.inputs, made.provenance.config) == (WORK["inputs"], WORK["config"])
    assert {name: made.read_bytes(name) for name in FILES} == FILES
    assert made.read_json("metrics.json") == {"loss": 0.069}
    assert made.file("metrics.json").read_bytes() == FILES["metrics.json"]
    assert not list(store.root.glob("work/*/*"))


def test_equal_content_under_two_keys_is_one_object(store: ArtifactStore) -> None:
    first, second = commit(store), commit(store, code_version="2")
    assert first.key != second.key
    assert (first.sha256, first.path) == (second.sha256, second.path)
    opened = store.open(first.sha256)
    assert (opened.files, opened.path, opened.provenance) == (first.files, first.path, None)


def test_every_part_of_the_work_decides_its_key() -> None:
    others = [
        stage_key("overfit_smoke", **WORK),
        stage_key(STAGE, **(WORK | {"inputs": {"dataset": "1" * 64}})),
        stage_key(STAGE, **(WORK | {"inputs": {"data": "0" * 64}})),
        stage_key(STAGE, **(WORK | {"config": {"rank": 16}})),
        stage_key(STAGE, **(WORK | {"code_version": "2"})),
    ]
    assert len({KEY, *others}) == 6


def test_files_are_read_only_and_records_hold_no_absolute_path(store: ArtifactStore) -> None:
    made = commit(store)
    for name in made.files:
        assert made.file(name).stat().st_mode & 0o222 == 0
    records = [path for path in store.root.rglob("*.json") if made.path not in path.parents]
    assert len(records) == 2
    assert not any(str(store.root.parent) in path.read_text() for path in records)
    with pytest.raises(ArtifactError, match=r"config\.paths\[1\] is the absolute path '/data/x'"):
        stage_key(STAGE, inputs={}, config={"paths": ["data/x", "/data/x"]}, code_version="1")


@given(st.data())
def test_one_flipped_bit_of_a_payload_file_is_found_before_use(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store = ArtifactStore(tmp_path_factory.mktemp("store"))
    made = commit(store)
    name = data.draw(st.sampled_from([name for name, content in FILES.items() if content]))
    position = data.draw(st.integers(0, len(FILES[name]) - 1))
    changed = bytearray(FILES[name])
    changed[position] ^= 1 << data.draw(st.integers(0, 7))
    overwrite(made.path / name, bytes(changed))
    for use in uses(store, made):
        with pytest.raises(IntegrityError) as caught:
            use()
        assert caught.value.file == str(made.path / name)
        assert (caught.value.expected, caught.value.found) == (made.files[name], sha256_bytes(bytes(changed)))
    with pytest.raises(IntegrityError, match="expected sha256"):
        made.read_bytes(name)


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def uses(store: ArtifactStore, made: Artifact) -> list[Callable[[], Any]]:
    """Every way to come by the artifact's files."""
    return [lambda: store.find(STAGE, KEY), lambda: store.open(made.sha256), made.verify, lambda: commit(store)]


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    overwrite(one, second)
    overwrite(other, first)


def link(path: Path) -> None:
    """Put a link to an equal copy elsewhere in a path's place."""
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


PAYLOAD_DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "truncated": ("metrics.json", lambda path: overwrite(path / "metrics.json", FILES["metrics.json"][:-1])),
    "lengthened": ("empty.txt", lambda path: overwrite(path / "empty.txt", b"\0")),
    "deleted file": ("metrics.json", lambda path: (path / "metrics.json").unlink()),
    "deleted directory": ("adapter/weights.bin", lambda path: shutil.rmtree(path / "adapter")),
    "added": ("adapter/second.bin", lambda path: (path / "adapter" / "second.bin").write_bytes(b"")),
    "swapped": ("adapter/weights.bin", lambda path: swap(path / "metrics.json", path / "adapter" / "weights.bin")),
    "link to a file": ("metrics.json", lambda path: link(path / "metrics.json")),
    "link to a directory": ("adapter", lambda path: link(path / "adapter")),
    "a pipe": ("metrics.json", lambda path: ((path / "metrics.json").unlink(), os.mkfifo(path / "metrics.json"))),
    "file made a directory": ("empty.txt", lambda path: ((path / "empty.txt").unlink(), (path / "empty.txt").mkdir())),
    "whole object deleted": ("", shutil.rmtree),
    "whole object a link": ("", link),
}


@pytest.mark.parametrize("damage", PAYLOAD_DAMAGE)
def test_a_damaged_object_is_refused_naming_the_file(store: ArtifactStore, damage: str) -> None:
    name, spoil = PAYLOAD_DAMAGE[damage]
    made = commit(store)
    spoil(made.path)
    for use in uses(store, made):
        with pytest.raises(IntegrityError) as caught:
            use()
        assert caught.value.file == str(made.path / name)
        assert caught.value.expected != caught.value.found
        assert "delete" in str(caught.value)


def test_following_the_advice_mends_a_damaged_store(store: ArtifactStore) -> None:
    made = commit(store)
    overwrite(made.path / "metrics.json", b"{}")
    with pytest.raises(IntegrityError) as caught:
        store.find(STAGE, KEY)
    for place in str(caught.value).split("delete ")[1].split(" and "):
        path = Path(place)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert store.find(STAGE, KEY) is None
    assert commit(store) == made


@pytest.mark.parametrize("kind", ["index", "listing"])
def test_any_flipped_byte_of_a_record_is_found(store: ArtifactStore, kind: str) -> None:
    made = commit(store)
    (path,) = store.root.glob("keys/*/*.json" if kind == "index" else "objects/*/*.files.json")
    original = path.read_bytes()
    for position in range(len(original)):
        mask = (0x01, 0x20, 0x80)[position % 3]
        overwrite(path, original[:position] + bytes([original[position] ^ mask]) + original[position + 1 :])
        with pytest.raises(IntegrityError) as caught:
            store.find(STAGE, KEY)
        assert caught.value.file == str(path)
    for changed in (original[:-1], original + b"\n", b"", b"[" * 100_000):
        overwrite(path, changed)
        with pytest.raises(IntegrityError):
            store.find(STAGE, KEY)
    overwrite(path, original)
    assert store.find(STAGE, KEY) == made


def test_a_record_filed_under_another_key_is_refused(store: ArtifactStore) -> None:
    first, second = commit(store), commit(store, files={"metrics.json": b"{}"}, code_version="2")
    index = store.root / "keys" / STAGE
    shutil.copy(index / f"{second.key}.json", index / f"{first.key}.json")
    with pytest.raises(IntegrityError, match=f"sha256 key {first.key} of stage {STAGE}, found {second.key}"):
        store.find(STAGE, first.key)
    # Nor does it help to write the wanted key into the record and to make all of its hashes agree.
    record = json.loads((index / f"{second.key}.json").read_text())
    record["provenance"]["key"] = first.key
    record["provenance_sha256"] = sha256_json(record["provenance"])
    overwrite(index / f"{first.key}.json", (json.dumps(record, indent=2, sort_keys=True) + "\n").encode())
    with pytest.raises(IntegrityError, match="derived"):
        store.find(STAGE, first.key)


@pytest.mark.parametrize("place", ["keys", "objects", "keys/lora_checkpoints"])
def test_no_part_of_the_store_may_be_a_link(store: ArtifactStore, place: str) -> None:
    commit(store)
    link(store.root / place)
    with pytest.raises(IntegrityError, match="a symbolic link"):
        store.find(STAGE, KEY)


def test_what_cannot_be_vouched_for_is_not_committed(store: ArtifactStore, tmp_path: Path) -> None:
    with store.work(STAGE, KEY) as scratch:
        with pytest.raises(ArtifactError, match="nothing was written"):
            store.commit(STAGE, KEY, scratch, **WORK)
        write(scratch)
        with pytest.raises(ArtifactError, match="is not that of its inputs"):
            store.commit(STAGE, KEY, scratch, **(WORK | {"code_version": "2"}))
        with pytest.raises(ArtifactError, match="not a directory inside"):
            store.commit(STAGE, KEY, tmp_path, **WORK)
        (scratch / "link").symlink_to(scratch / "metrics.json")
        with pytest.raises(IntegrityError, match="a symbolic link"):
            store.commit(STAGE, KEY, scratch, **WORK)
        (scratch / "link").unlink()
        made = store.commit(STAGE, KEY, scratch, **WORK)
    with pytest.raises(ArtifactError, match="a committed result is never replaced"):
        commit(store, files={"metrics.json": b"{}"})
    assert store.find(STAGE, KEY) == made


@pytest.mark.parametrize(("stage", "key"), [("../keys", KEY), ("Stage", KEY), ("", KEY), (STAGE, "k"), (STAGE, "../x")])
def test_names_cannot_leave_the_store(store: ArtifactStore, stage: str, key: str) -> None:
    with pytest.raises(ArtifactError, match="allowed"):
        store.find(stage, key)
    with pytest.raises(ArtifactError, match=r"no file '\.\./x'"):
        commit(store).file("../x")


def test_scratch_outlives_a_failure_and_is_cleared_on_request(store: ArtifactStore) -> None:
    with contextlib.suppress(RuntimeError), store.work(STAGE, KEY) as scratch:
        write(scratch)
        raise RuntimeError
    with store.work(STAGE, KEY) as again:
        assert (again / "metrics.json").read_bytes() == FILES["metrics.json"]
        assert store.remove_leftovers() == []
    assert store.remove_leftovers() == [f"{STAGE}/{KEY}"]
    assert not scratch.exists()


HOLDER = """
import sys
from pathlib import Path
from arena_pipeline.provenance.artifacts import ArtifactStore
with ArtifactStore(Path(sys.argv[1])).work(sys.argv[2], sys.argv[3]):
    print("holding", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_work_on_one_key_and_a_killed_one_frees_it(store: ArtifactStore) -> None:
    command = [sys.executable, "-c", HOLDER, str(store.root), STAGE, KEY]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with pytest.raises(LockHeld, match=f"{STAGE} with key {KEY}.*process {holder.pid} on "), store.work(STAGE, KEY):
            pass
        with store.work(STAGE, stage_key(STAGE, **(WORK | {"code_version": "2"}))):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with store.work(STAGE, KEY):
        pass


def killed_at(moment: int, root: Path) -> bool:
    """Run a whole commit in a child that is killed before its n-th file operation; whether it lived to the end."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event == "open" or event.startswith(("os.", "shutil.", "fcntl.", "tempfile.")):
                seen += 1
                if seen == moment + 1:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            store = ArtifactStore(root)
            with store.work(STAGE, KEY) as scratch:
                write(scratch / "result")
                # From here on all work is done, and a kill must not lose it.
                root.with_name(f"{root.name} is made").touch()
                store.commit(STAGE, KEY, scratch / "result", **WORK)
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def test_a_commit_killed_at_any_point_happened_whole_or_not_at_all(tmp_path: Path) -> None:
    moment, found_after_kill = 0, 0
    while not killed_at(moment, root := tmp_path / str(moment)):
        store = ArtifactStore(root)
        scratch = root / "work" / STAGE / KEY / "result"
        written = {name for name in FILES if (scratch / name).is_file()}
        found = store.find(STAGE, KEY)
        if found is not None:
            found_after_kill += 1
            assert found.files == {name: sha256_bytes(data) for name, data in FILES.items()}
            assert all(found.file(name).stat().st_mode & 0o222 == 0 for name in found.files)
        elif root.with_name(f"{root.name} is made").exists():
            assert written == set(FILES)
        assert commit(store).files == {name: sha256_bytes(data) for name, data in FILES.items()}
        assert store.find(STAGE, KEY) is not None
        moment += 1
    # Among the points were some before the object was in place and some after.
    assert 0 < found_after_kill < moment
    assert moment > 40


def test_a_commit_that_was_cut_off_is_finished_only_with_sound_bytes(store: ArtifactStore) -> None:
    made = commit(store)
    index, journal = (store.root / place / STAGE / f"{KEY}.json" for place in ("keys", "commits"))
    index.rename(journal)
    (made.path / "metrics.json").unlink()
    for find in (lambda: store.find(STAGE, KEY), lambda: commit(store)):
        with pytest.raises(IntegrityError, match=r"metrics\.json: expected sha256 \w+, found no such file"):
            find()
    assert not index.exists()
    (made.path / "metrics.json").write_bytes(FILES["metrics.json"])
    assert store.find(STAGE, KEY) == made
    assert index.exists()
    assert not journal.exists()


def test_errors_are_of_the_kind_the_command_line_prints() -> None:
    assert all(issubclass(kind, ArenaError) for kind in (ArtifactError, IntegrityError, LockHeld))
