from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cache.contracts import Config as CacheConfig
from experiments.errors import SpecError
from headrace.quantities import format_size, parse_size
from headrace.settings import load_settings
from ingest.contracts import Config as IngestConfig
from preprocess.contracts import Config as PreprocessConfig
from trainer.contracts import Config as TrainConfig


def file_with(path: Path, text: str) -> Path:
    file = path / "headrace.yaml"
    file.write_text(text)
    return file


def problem(*args: Path | None, environment: dict[str, str] | None = None, flags: tuple[str, ...] = ()) -> str:
    with pytest.raises(SpecError) as caught:
        load_settings(args[0] if args else None, environment=environment or {}, flags=flags)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults_are_those_of_the_stages() -> None:
    settings = load_settings(None, environment={})
    assert settings.ingest_config() == IngestConfig()
    assert settings.preprocess_config() == PreprocessConfig()
    assert settings.cache_config() == CacheConfig()
    assert settings.train_config(Path("/c"), {}) == TrainConfig("/c")


def test_later_sources_win_one_value_at_a_time(tmp_path: Path) -> None:
    file = file_with(tmp_path, "train: {keep: 5, threads: 2, bad_steps: 7}\ningest:\n  max_lag: 1GiB\n")
    environment = {"HEADRACE_TRAIN__KEEP": "6", "HEADRACE_TRAIN__THREADS": "3", "HOME": "/"}
    settings = load_settings(file, environment=environment, flags=("train.keep=9", "log.durability=power"))
    train = settings.train
    assert (train.keep, train.threads, train.bad_steps) == (9, 3, 7)
    assert settings.ingest_config().max_lag_bytes == 1 << 30
    assert settings.log.durability == "power"


def test_units(tmp_path: Path) -> None:
    file = file_with(
        tmp_path, "ingest: {ahead: 2h, list_every: 500ms, split_size: 1048576}\nlog: {session_timeout: 30s}"
    )
    settings = load_settings(file, environment={})
    config = settings.ingest_config()
    assert (config.ahead_us, config.listing_s, config.split_bytes) == (7_200_000_000, 0.5, 1 << 20)
    assert settings.log.session_timeout == 30_000_000


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\n  # one\n\n"])
def test_a_file_without_settings_is_fine(tmp_path: Path, text: str) -> None:
    assert load_settings(file_with(tmp_path, text), environment={}) == load_settings(None, environment={})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("\ntrian: {keep: 3}\n", ("headrace.yaml:2", "'trian'", "Did you mean 'train'?")),
        ("train:\n  keep: 3\n  thread: 2\n", ("headrace.yaml:3", "'thread'", "Did you mean 'threads'?")),
        ("train: {keep: zero}", ("headrace.yaml:1", "(train.keep)", "'zero'")),
        ("train: {keep: 0}", ("(train.keep)", "greater than or equal to 1", "got 0")),
        ("ingest: {max_lag: much}", ("(ingest.max_lag)", "64MiB", "'much'")),
        ("log: {durability: powr}", ("(log.durability)", "Did you mean 'power'?")),
        ("log: process", ("headrace.yaml:1", "(log)")),
        ("train: {keep: 3, keep: 4}", ("'keep'", "once")),
        ("- a", ("headrace.yaml:1", "a list")),
        ("train: {keep: 3", ("headrace.yaml:1", "YAML")),
    ],
)
def test_what_is_wrong_is_placed(tmp_path: Path, text: str, parts: tuple[str, ...]) -> None:
    found = problem(file_with(tmp_path, text))
    assert all(part in found for part in parts), found


def test_variables_are_checked_too() -> None:
    found = problem(environment={"HEADRACE_TRAIN__KEPT": "4"})
    assert "the variable HEADRACE_TRAIN__KEPT" in found
    assert "Did you mean 'keep'?" in found
    assert "HEADRACE_TRIAN" in problem(environment={"HEADRACE_TRIAN__KEEP": "4"})
    assert "got 'two'" in problem(environment={"HEADRACE_TRAIN__KEEP": "two"})
    assert "HEADRACE_TRAIN" in problem(environment={"HEADRACE_TRAIN": "4", "HEADRACE_TRAIN__KEEP": "3"})


def test_flags_are_checked_too() -> None:
    assert "Did you mean 'keep'?" in problem(flags=("train.kep=3",))
    assert "NAME=VALUE" in problem(flags=("train.keep",))
    assert "--set train.keep" in problem(flags=("train.keep=no",))


def test_all_problems_at_once(tmp_path: Path) -> None:
    found = problem(file_with(tmp_path, "trian: 1\ntrain: {keep: no}\n"), flags=("cache.memory=x",))
    assert "3 problems" in found


def test_variables_of_tests_are_no_settings() -> None:
    environment = {"HEADRACE_KILL_AT": "x:1", "HEADRACE_LEDGER": "/l", "HEADRACE_REQUIRE_SERVICES": "1"}
    settings = load_settings(None, environment=environment)
    assert settings.train_config(Path("/c"), environment).ledger == "/l"


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 << 30), ("64 MiB", 64 << 20), ("1.5kb", 1500), ("7", 7), (7, 7), ("0", 0)]
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "4 GiBs", "-1", -1, True, None, "GiB", 1.5])
def test_no_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_size(text)


def test_sizes_for_people() -> None:
    assert [format_size(n) for n in (0, 1023, 1536, 4 << 30)] == ["0 B", "1023 B", "1.5 KiB", "4 GiB"]


def test_a_value_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("redis://user:s3cret@host:6379/0\n")
    environment = {"HEADRACE_CACHE__REDIS__URL_FILE": str(tmp_path / "secret")}
    settings = load_settings(None, environment=environment)
    found = settings.cache_config().redis
    assert found is not None
    assert found.url == "redis://user:s3cret@host:6379/0"
    assert "s3cret" not in repr(settings)
    both = environment | {"HEADRACE_CACHE__REDIS__URL": "redis://h/0"}
    assert "HEADRACE_CACHE__REDIS__URL or HEADRACE_CACHE__REDIS__URL_FILE, got both" in problem(environment=both)
    absent = problem(environment={"HEADRACE_TRAIN__KEEP_FILE": str(tmp_path / "absent")})
    assert "the variable HEADRACE_TRAIN__KEEP_FILE" in absent
    assert "absent: No such file" in absent


@pytest.mark.parametrize("name", ["HEADRACE_TRAIN__KEEP", "HEADRACE_CACHE__REDIS__URL", "HEADRACE_LOG__DURABILITY"])
def test_what_a_file_holds_is_never_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("s3cret")
    said = problem(environment={f"{name}_FILE": str(tmp_path / "secret")})
    assert "s3cret" not in said
    assert name in said


def test_all_problems_as_json(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load_settings(file_with(tmp_path, "train: {keep: 0, kep: 3}\n"), environment={})
    assert {problem["path"] for problem in caught.value.listed()} == {"train.keep", "train.kep"}
    assert caught.value.as_dict()["got"] == f"{caught.value.problems[0].got} (and 1 more, see problems)"


SECRET = "s3cr3t-of-a-file"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("HEADRACE_TRAIN__KEEP_FILE", ("the variable HEADRACE_TRAIN__KEEP_FILE", "not shown")),
        ("HEADRACE_INGEST__MAX_LAG_FILE", ("64MiB", "not shown")),
        ("HEADRACE_LOG__DURABILITY_FILE", ("'process' or 'power'", "not shown")),
        ("HEADRACE_CACHE__REDIS__URL_FILE", ("redis://", "not shown")),
        ("HEADRACE_TRAIN__KEPT_FILE", ("Did you mean 'keep'?",)),
        ("HEADRACE_TRAIN_FILE", ("the variable HEADRACE_TRAIN_FILE", "not shown")),
    ],
)
def test_a_value_from_a_file_that_does_not_fit_is_not_shown(tmp_path: Path, name: str, parts: tuple[str, ...]) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with pytest.raises(SpecError) as caught:
        load_settings(None, environment={name: str(tmp_path / "secret")})
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert SECRET not in str(caught.value) + str(caught.value.as_dict())


@pytest.mark.parametrize("command", [["validate"], ["doctor", "--warm"], ["--debug", "validate"], ["run", "ingest"]])
def test_no_command_prints_what_a_file_holds(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "headrace.yaml").write_text("# nothing\n")
    (tmp_path / "secret").write_text(SECRET)
    environment = os.environ | {"HEADRACE_INGEST__MAX_LAG_FILE": str(tmp_path / "secret")}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "-C", str(tmp_path), *command, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "HEADRACE_INGEST__MAX_LAG_FILE" in done.stderr
    assert SECRET not in done.stdout + done.stderr
