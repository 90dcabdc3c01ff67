"""The command line as people and programs meet it, without anything running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.output import report_error

FEED = """
feed: rows
files: {url: data, match: "*.csv"}
format: {delimited: {sep: ","}}
columns: {user: int64, price: float32, time: int64, label: int64}
event_time: {column: time, unit: s}
key: [user]
partitions: 2
"""
EXPERIMENT = """
experiment: ctr
sample: rows
labels: {label: {column: label}}
features:
  user: {id: user}
  price: {dense: price}
model: lr
train: {batch_rows: 16}
"""
COMMANDS = [
    ["demo"], ["init"], ["doctor"], ["schema"], ["validate"], ["plan"], ["publish"], ["list"], ["show"], ["retire"],
    ["run"], ["status"], ["lag"], ["checkpoint", "ls"], ["checkpoint", "show"], ["checkpoint", "verify"],
]  # fmt: skip


def headrace(*args: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", *map(str, args)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")} | env
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (
        ("headrace.yaml", "# nothing\n"),
        ("feeds/rows.yaml", FEED),
        ("experiments/ctr.yaml", EXPERIMENT),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "data").mkdir()
    return tmp_path


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['headrace', '--help']\n"
        "from headrace.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'pydantic_settings', 'pyarrow', 'numba', 'torch', 'numpy', 'yaml', 'structlog', 'sqlite3'}\n"
        "sys.stderr.write(','.join(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert "checkpoint" in done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_shows_an_example(command: list[str]) -> None:
    done = headrace(*command, "--help")
    assert done.returncode == 0
    assert f"Example: headrace {' '.join(command)}" in done.stdout


def test_version() -> None:
    assert headrace("--version").stdout.startswith("headrace 0.")


def test_publish_list_show_plan_retire(project: Path) -> None:
    assert json.loads(headrace("-C", project, "plan", "--json").stdout)["changes"][1]["action"] == "new"
    assert not (project / ".headrace").exists(), "plan must not make anything"
    published = headrace("-C", project, "publish", project / "experiments/ctr.yaml", "--json")
    assert published.returncode == 0
    items = json.loads(published.stdout)["published"]
    assert [(item["kind"], item["name"], item["action"], item["version"]) for item in items] == [
        ("feed", "rows", "new", None),
        ("experiment", "ctr", "new", 1),
    ]
    again = json.loads(headrace("-C", project, "publish", project / "experiments/ctr.yaml", "--json").stdout)
    assert {item["action"] for item in again["published"]} == {"unchanged"}
    (project / "experiments/ctr.yaml").write_text(EXPERIMENT.replace("16", "32"))
    change = json.loads(headrace("-C", project, "plan", "--json").stdout)["changes"][1]
    assert (change["action"], change["version"], change["retires"]) == ("changed", 2, 1)
    assert change["differences"] == [{"path": "train.batch_rows", "old": "16", "new": "32"}]
    listed = json.loads(headrace("-C", project, "list", "--json").stdout)
    assert [(e["name"], e["version"], e["state"]) for e in listed["experiments"]] == [("ctr", 1, "live")]
    shown = json.loads(headrace("-C", project, "show", "ctr", "--json").stdout)
    assert shown["versions"][0]["experiment"]["model"] == {"lr": {}}
    status = json.loads(headrace("-C", project, "status", "--json").stdout)
    assert status["feeds"]["rows"]["rows"] == 0
    assert status["experiments"]["ctr"]["rows_trained"] == 0
    assert headrace("-C", project, "lag", "--json").returncode == 0
    assert json.loads(headrace("-C", project, "checkpoint", "ls", "--json").stdout) == {"checkpoints": []}
    assert json.loads(headrace("-C", project, "retire", "ctr", "--json").stdout)["retired"]["version"] == 1
    assert json.loads(headrace("-C", project, "status", "--json").stdout)["experiments"] == {}


def test_texts_for_people(project: Path) -> None:
    headrace("-C", project, "publish", project / "experiments/ctr.yaml")
    for command in (["validate"], ["plan"], ["list"], ["show", "rows"], ["status"], ["lag"], ["checkpoint", "ls"]):
        done = headrace("-C", project, *command)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


def test_all_problems_of_all_files_are_in_the_object(project: Path) -> None:
    for number in range(12):
        text = f"experiment: x{number}\nsample: nothing\nlabels: {{y: {{column: y}}}}\nfeatures: {{a: {{hash: a}}}}\nmodel: lr\n"
        (project / f"experiments/x{number}.yaml").write_text(text)
    done = headrace("-C", project, "validate", "--json")
    assert done.returncode == 2
    problems = json.loads(done.stdout)["problems"]
    assert {Path(problem["file"]).name for problem in problems} >= {f"x{n}.yaml" for n in range(12)}


@pytest.mark.parametrize("name", ["feed", "experiment"])
def test_schema(name: str) -> None:
    schema = json.loads(headrace("schema", name).stdout)
    assert name in schema["properties"]


def test_from_inside_the_project_and_below(project: Path) -> None:
    """The project's folder experiments/ must not be taken for our package of that name."""
    assert headrace("validate", cwd=project).returncode == 0
    assert headrace("validate", cwd=project / "experiments").returncode == 0


ERRORS = [
    (["publish", "{p}/experiments/none.yaml"], 2, "no such file"),
    (["show", "ctrr"], 2, "nothing was published"),
    (["status"], 2, "nothing was published"),
    (["run", "all", "--until-end"], 2, "nothing published"),
    (["run", "all", "--until-end", "--until-idle"], 2, "exclude"),
    (["run", "everything"], 2, "everything"),
    (["frobnicate"], 2, "frobnicate"),
    (["status", "--jsno"], 2, "--jsno"),
    (["checkpoint", "show", "ctr"], 2, "'ctr'"),
    (["--set", "trian.keep=3", "validate"], 2, "trian"),
    (["--log-level", "loud", "validate"], 2, "loud"),
]


@pytest.mark.parametrize(
    ("args", "code", "part"), ERRORS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_errors_in_both_shapes(project: Path, args: list[str], code: int, part: str) -> None:
    args = [arg.format(p=project) for arg in args]
    done = headrace("-C", project, *args)
    assert done.returncode == code
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    done = headrace("-C", project, *args, "--json")
    answer = json.loads(done.stdout)
    assert answer.keys() <= {"error", "problems"}
    error = answer["error"]
    assert set(error) == {"expected", "got", "where", "do", "exit_code"}
    assert error["exit_code"] == done.returncode == code
    assert all(error[key] for key in ("expected", "got", "where", "do"))


def test_no_project(tmp_path: Path) -> None:
    done = headrace("status", cwd=tmp_path)
    assert done.returncode == 2
    assert "headrace.yaml" in done.stderr
    assert headrace("-C", tmp_path / "none", "status").returncode == 2


def test_a_typo_in_a_spec_is_one_screen(project: Path) -> None:
    (project / "experiments/ctr.yaml").write_text(EXPERIMENT.replace("dense: price", "dense: prize"))
    done = headrace("-C", project, "validate")
    assert done.returncode == 2
    assert "ctr.yaml:7" in done.stderr
    assert "prize" in done.stderr
    assert "price" in done.stderr
    assert len(done.stderr.splitlines()) <= 24
    assert headrace("-C", project, "publish", project / "experiments/ctr.yaml").returncode == 2
    assert not (project / ".headrace").exists()


def test_an_unexpected_error_is_one_line_without_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(RuntimeError("strange"), as_json=True, debug=False) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["exit_code"] == 1
    assert "RuntimeError: strange" in err
    assert "--debug" in err
    assert "Traceback" not in err
    assert report_error(RuntimeError("strange"), as_json=False, debug=True) == 1
    assert "RuntimeError: strange" in capsys.readouterr().err


def test_ctrl_c_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(KeyboardInterrupt(), as_json=False, debug=False) == 130


def test_a_state_folder_that_cannot_be_used(project: Path) -> None:
    (project / ".headrace").write_text("a file where a folder must be")
    done = headrace("-C", project, "publish", project / "experiments/ctr.yaml")
    assert done.returncode in (2, 3)
    assert "Traceback" not in done.stderr
    assert "Traceback" in headrace("--debug", "-C", project, "publish", project / "experiments/ctr.yaml").stderr


def test_doctor(project: Path) -> None:
    done = headrace("-C", project, "doctor", "--json")
    found = json.loads(done.stdout)
    assert found["ok"] is True
    text = " ".join(finding["what"] for finding in found["findings"])
    assert all(word in text for word in ("Python 3", "SQLite", "torch", "huge pages", "come from"))
    refused = headrace("-C", project, "doctor", OMP_THREAD_LIMIT="1")
    assert refused.returncode == 1
    assert "OMP_THREAD_LIMIT" in refused.stdout
