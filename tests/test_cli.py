"""The command line: results, exit codes, and one sentence for everything that is wrong."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

import nuplan_files
from command_output import Output, complaint_of, json_of
from scenes import bare_scene, small_scene
from waycode import __version__
from waycode.cli import data, main
from waycode.dataset.dataset import Dataset, ShardContents, load_scene, save_scene, write_dataset
from waycode.scene import Scene


def make_shard(task: list[Scene]) -> ShardContents:
    return ShardContents(task)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    scenes = [small_scene("first", num_steps=91), small_scene("second"), bare_scene("third")]
    write_dataset(tmp_path / "scenes", [scenes[:2], scenes[2:]], make=make_shard, source="made-up", settings={})
    return tmp_path / "scenes"


def run_waycode(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "waycode.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["sumo", "convert", "info", "check", "show"])
def test_help_shows_every_option_with_its_default(command: str, capsys: Output) -> None:
    assert main(["data", command, "--help"]) == 0
    text = capsys.readouterr().out
    options = re.findall(r"^[│ ]*(--[a-z][a-z-]*)", text, flags=re.MULTILINE)
    assert "--json" in options
    assert text.count("(default:") + text.count("(required)") >= len(options)


def test_version(capsys: Output) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"waycode {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["data"],
        ["nonsense"],
        ["data", "sumo"],
        ["data", "sumo", "--out", "x", "--scenes", "many"],
        ["data", "info"],
        ["data", "convert", "x", "--from", "kitti", "--out", "y"],
        ["demo", "--colour", "red"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_what_cannot_be_parsed_exits_with_2(arguments: list[str], capsys: Output) -> None:
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.err
    assert not output.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("data info {tmp}/nowhere", "is not a dataset"),
        ("data info {tmp}", "is not a dataset"),
        ("data info {folder} --workers 0", "--workers is 0, expected at least 1"),
        ("data check {tmp}", "is not a dataset"),
        ("data show {folder} --index 3", "has no scene 3: expected 0 to 2"),
        ("data show {folder} --index -1", "has no scene -1: expected 0 to 2"),
        ("data show {tmp}/nothing.parquet", "does not exist"),
        ("data show {folder} --agent nobody", "has no road user 'nobody'"),
        ("data show {folder} --index 0 1 --agent car", "need a single --index, got 2"),
        ("data show {folder} --index", "--index names no scene"),
        ("data show {folder} --out {tmp}/scene.bmp", "expected a file that ends in .png"),
        ("data show {folder} --radius-m -5 --out {tmp}/scene.png", "expected a positive number of metres"),
        ("data show {folder} --out /proc/nowhere/scene.png", "/proc/nowhere"),
        ("data sumo --out {tmp}/new --scenes 0", "num_scenes is 0, expected at least 1"),
        ("data sumo --out {tmp}/new --families motorway", "--families has motorway; available: all_way_stop"),
        ("data sumo --out {tmp}/new --workers 0", "--workers is 0"),
        ("data convert --from womd --out {tmp}/new", "no raw data was named"),
        ("data convert {tmp}/nowhere --from womd --out {tmp}/new", "does not exist"),
        ("data convert {tmp} --from womd --out {tmp}/new --maps {tmp}", "--maps goes with --from nuplan only"),
        ("data convert {tmp} --from nuplan --out {tmp}/new", "nuplan needs --maps"),
        ("data convert {tmp} --from nuplan --out {tmp}/new --maps {tmp}/no", "expected a folder that exists"),
        ("data convert {tmp} --from gpudrive --out {tmp}/new --scenes 0", "--scenes is 0"),
        ("data convert {tmp}/empty --from gpudrive --out {tmp}/new", "empty"),
        ("data convert {tmp}/empty --from argoverse2 --out {tmp}/new", "empty"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: str, sentence: str, folder: Path, tmp_path: Path, capsys: Output
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(arguments.format(tmp=tmp_path, folder=folder).split()) == 2
    assert sentence in complaint_of(capsys)
    assert not (tmp_path / "new").exists()


def test_info_prints_tables(folder: Path, capsys: Output) -> None:
    assert main(["data", "info", str(folder)]) == 0
    text = capsys.readouterr().out
    for words in ("made-up", "bytes per scene", "pedestrian", "straight", "signalled lanes", "straße", "sha256"):
        assert words in text


def test_info_for_programs(folder: Path, capsys: Output) -> None:
    assert main(["data", "info", str(folder), "--json", "--workers", "2"]) == 0
    content = json_of(capsys)
    assert content["num_scenes"] == 3
    assert content["road_users"]["vehicle"]["total"] == 3
    assert content["steps"] == {"2": 1, "5": 1, "91": 1}


def test_check_passes_a_whole_dataset(folder: Path, capsys: Output) -> None:
    assert main(["data", "check", str(folder)]) == 0
    assert "3 scenes in 2 shards, 0 faults" in capsys.readouterr().out
    assert main(["data", "check", str(folder), "--json"]) == 0
    assert json_of(capsys) == {"passed": True, "num_scenes": 3, "num_shards": 2, "faults": []}


def test_check_lists_faults_and_exits_with_1(folder: Path, capsys: Output) -> None:
    shard = folder / "shard-00000.parquet"
    shard.write_bytes(shard.read_bytes() + b"x")
    assert main(["data", "check", str(folder)]) == 1
    assert "shard-00000.parquet does not have the checksum" in capsys.readouterr().out
    assert main(["data", "check", str(folder), "--json"]) == 1
    assert json_of(capsys)["passed"] is False


def test_show_draws_a_scene(folder: Path, tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "pictures" / "scene.png"
    arguments = ["data", "show", str(folder), "--index", "1", "--radius-m", "30", "--agent", "rider", "--step", "2"]
    assert main([*arguments, "--out", str(out), "--json"]) == 0
    assert json_of(capsys) == {"path": str(out), "scenes": [{"index": 1, "id": "second"}]}
    assert matplotlib.image.imread(out).shape[:2] == (1284, 1200)


def test_show_draws_a_file_and_a_sheet(folder: Path, tmp_path: Path, capsys: Output) -> None:
    save_scene(small_scene("alone"), tmp_path / "alone.parquet")
    picture = str(tmp_path / "picture.png")
    assert main(["data", "show", str(tmp_path / "alone.parquet"), "--whole", "--out", picture]) == 0
    assert capsys.readouterr().out == f"alone -> {picture}\n"
    assert main(["data", "show", str(folder), "--index", "0", "1", "2", "--out", picture]) == 0
    assert "first, second, third" in capsys.readouterr().out


@pytest.mark.real_data
def test_convert_can_be_run_again_and_refuses_other_settings(shared_data: Path, tmp_path: Path, capsys: Output) -> None:
    files = [str(file) for file in sorted((shared_data / "womd-json" / "training").iterdir())[:3]]
    out = str(tmp_path / "real")
    for _ in range(2):
        assert main(["data", "convert", *files, "--from", "gpudrive", "--out", out, "--scenes", "2", "--json"]) == 0
        assert json_of(capsys)["num_scenes"] == 2
    assert load_scene(out, 1).source == "gpudrive"
    assert main(["data", "convert", *files, "--from", "gpudrive", "--out", out]) == 2
    assert "holds a dataset with other settings" in complaint_of(capsys)
    assert main(["data", "check", out]) == 0


@pytest.mark.real_data
@pytest.mark.parametrize(("source", "raw"), [("womd", "womd-tfrecord"), ("argoverse2", "argoverse2")])
def test_convert_reads_the_real_files(source: str, raw: str, shared_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "real"
    assert main(["data", "convert", str(shared_data / raw), "--from", source, "--out", str(out)]) == 0
    assert load_scene(out).source == source
    assert main(["data", "check", str(out)]) == 0


def test_convert_reads_nuplan_with_its_options(tmp_path: Path, capsys: Output) -> None:
    log, maps, out = nuplan_files.write_log(tmp_path / "log.db"), tmp_path / "maps", tmp_path / "out"
    nuplan_files.write_map(maps)
    command = ["data", "convert", str(log), "--from", "nuplan", "--out", str(out), "--scenes", "2"]
    assert main(command) == 2
    assert "--maps" in complaint_of(capsys)
    assert main([*command, "--maps", str(maps), "--future-s", "5"]) == 0
    assert load_scene(out).num_steps == 20 + 1 + 50


def test_sumo_passes_its_options_on(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    import waycode.sources.sumo as sumo

    def generate(out: Path, *, settings: sumo.SumoSettings, workers: int, on_shard: Any) -> Any:
        assert (settings.num_scenes, settings.seed, settings.duration_s, workers) == (2, 7, 15.0, 3)
        assert settings.families == (sumo.Family.ROUNDABOUT,)
        on_shard(2)
        scenes = [small_scene("a"), small_scene("b")]
        return write_dataset(out, [scenes], make=make_shard, source="sumo", settings={})

    monkeypatch.setattr(sumo, "generate_dataset", generate)
    out = tmp_path / "new"
    arguments = ["--scenes", "2", "--seed", "7", "--future-s", "15", "--workers", "3", "--families", "roundabout"]
    assert main(["data", "sumo", "--out", str(out), *arguments]) == 0
    assert f"{out}: 2 scenes in 1 shards, 0 rejected" in capsys.readouterr().out
    assert len(Dataset(out)) == 2


def test_a_stopped_run_says_how_to_go_on(folder: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(least: int, **options: int | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "check_at_least", stop)
    assert main(["data", "info", str(folder)]) == 130
    assert complaint_of(capsys) == "waycode: stopped; run again to continue\n"


def test_exit_codes_reach_the_shell(folder: Path, tmp_path: Path) -> None:
    good = run_waycode("data", "check", folder)
    assert (good.returncode, good.stderr) == (0, "")
    bad = run_waycode("data", "info", tmp_path / "nowhere")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr
    assert run_waycode("data", "show", folder, "--index", "x").returncode == 2
    (folder / "shard-00001.parquet").unlink()
    assert run_waycode("data", "check", folder).returncode == 1


def test_an_interrupt_from_the_keyboard_exits_with_130(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time, waycode.cli.data as data\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background a shell has it ignored
        "def wait(least, **options):\n    sys.stdout.write('waiting\\n'); sys.stdout.flush(); time.sleep(60)\n"
        "data.check_at_least = wait\n"
        "from waycode.cli import main\n"
        "sys.exit(main(['data', 'check', '.']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "waycode: stopped; run again to continue\n"


def test_the_command_line_starts_without_heavy_imports() -> None:
    program = (
        "import sys\nfrom waycode.cli import main\nmain(['--version'])\n"
        "assert not {'pyarrow', 'matplotlib', 'scipy', 'torch', 'libsumo'} & set(sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
