"""`waycode plan`, `swap`, `find` and `objectives`: results, exit codes, one sentence for everything that is wrong."""

import re
from pathlib import Path

import matplotlib.image
import pytest

from command_output import Output, complaint_of, json_of
from waycode.cli import main
from waycode.demo import bundled_dataset
from waycode.objectives import OBJECTIVES
from waycode.planner import Plan


@pytest.mark.parametrize("command", ["plan", "swap", "find", "objectives"])
def test_help_shows_every_option_with_its_default(command: str, capsys: Output) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    options = re.findall(r"^[│ ]*(--[a-z][a-z-]*)", text, flags=re.MULTILINE)
    assert "--json" in options
    assert text.count("(default:") + text.count("(required)") >= len(options)


def test_plan_prints_what_it_is_worth(capsys: Output) -> None:
    assert main(["plan", "sample", "--index", "9", "--objective", "2 * terminal-variance + comfort"]) == 0
    text = " ".join(capsys.readouterr().out.split())  # long sentences are wrapped
    for words in (
        "found",
        "satisfied",
        "the best plan of 3 tokens",
        "terminal-variance",
        "comfort",
        "decodes",
        "24",
        "search",
    ):
        assert words in text


def test_plan_for_programs_is_a_plan(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "objective.txt").write_text("# near\ngoal-point(20, 0, frame=agent)\n  then comfort\n")
    options = ["--beam-width", "2", "--depth", "2", "--refine-steps", "1", "--no-gate", "--json"]
    folder = str(bundled_dataset().folder)
    agent = bundled_dataset()[9].tracks.ids[0]
    command = ["plan", folder, "--index", "9", "--agent", agent, "--objective", f"@{tmp_path}/objective.txt"]
    assert main([*command, *options]) == 0
    plan = Plan.from_json(capsys.readouterr().out)
    assert (plan.scene_id, plan.agent_id, plan.depth) == (bundled_dataset()[9].id, agent, 2)
    assert {"goal-point", "comfort"} <= set(plan.costs)
    assert plan.trace is not None
    assert len(plan.trace) == 8 + 16


def test_a_plan_that_ran_out_of_time_says_so(capsys: Output) -> None:
    assert main(["plan", "sample", "--objective", "terminal-variance", "--deadline-s", "0", "--json"]) == 0
    assert json_of(capsys)["status"] == "deadline"


def test_plan_and_swap_draw_pictures(tmp_path: Path, capsys: Output) -> None:
    plan, swap = str(tmp_path / "plan.png"), str(tmp_path / "swap.png")
    assert main(["plan", "sample", "--index", "9", "--objective", "left-turn", "--depth", "1", "--out", plan]) == 0
    assert f"{plan}: what was tried and found" in capsys.readouterr().out
    assert main(["swap", "sample", "sample", "--index-b", "9", "--tokens", "2", "--out", swap]) == 0
    assert f"{swap}: both scenes" in capsys.readouterr().out
    assert all(matplotlib.image.imread(path).shape[1] > 600 for path in (plan, swap))


def test_a_swap_decodes_the_code_of_the_other_scene(capsys: Output) -> None:
    assert main(["swap", "sample", "sample", "--index-a", "9", "--index-b", "3", "--json"]) == 0
    swapped = json_of(capsys)
    assert main(["swap", "sample", "sample", "--index-a", "9", "--index-b", "9", "--json"]) == 0
    own = json_of(capsys)
    assert swapped["tokens"] == own["tokens"]
    assert swapped["scene_id"] == bundled_dataset()[3].id


def test_find_lists_the_same_manoeuvre_elsewhere(tmp_path: Path, capsys: Output) -> None:
    scene = bundled_dataset()[9]
    agent = scene.tracks.ids[int(scene.tracks.to_predict[0])]
    index = str(tmp_path / "index.parquet")
    like = ["--like", f"{scene.id}:{agent}", "--count", "3", "--json"]
    assert main(["find", "sample", *like, "--out", index]) == 0
    fresh = json_of(capsys)
    assert (fresh["found"][0]["scene_id"], fresh["found"][0]["agent_id"]) == (scene.id, agent)
    assert len(fresh["found"]) == 3
    assert main(["find", index, *like]) == 0
    assert json_of(capsys) == fresh
    tokens = ",".join(map(str, fresh["found"][0]["tokens"]))
    assert main(["find", index, "--prefix", tokens]) == 0
    assert "recorded manoeuvres" in capsys.readouterr().out
    for arguments, sentence in (
        (["--like", "nowhere:nobody"], "the index has no scene 'nowhere'"),
        (["--like", f"{scene.id}:nobody"], "the index has no agent 'nobody'"),
        (["--prefix", "1,9"], "expected 0 to 7"),
    ):
        assert main(["find", index, *arguments]) == 2
        assert sentence in complaint_of(capsys)


def test_objectives_are_listed_with_their_parameters(capsys: Output) -> None:
    assert main(["objectives"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in OBJECTIVES)
    assert "max_speed_mps = 5 m/s" in text
    assert "a then b" in text
    assert main(["objectives", "--json"]) == 0
    assert [entry["name"] for entry in json_of(capsys)] == list(OBJECTIVES)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("plan {tmp}/no.parquet --objective comfort", "does not exist"),
        ("plan sample --index 99 --objective comfort", "has no scene 99"),
        ("plan sample --objective comfrot", "did you mean comfort"),
        ("plan sample --objective @{tmp}/none.txt", "cannot be read"),
        ("plan sample --objective comfort --agent nobody", "has no agent 'nobody'; observed now:"),
        ("plan sample --objective comfort --model nobody", "neither a model's folder nor"),
        ("plan sample --objective comfort --depth 4", "depth is 4, expected 1 to 3"),
        ("plan sample --objective comfort --beam-width 0", "beam_width is 0"),
        ("plan sample --objective comfort --threads 0", "--threads is 0"),
        ("plan sample --objective lane-change --refine-steps 1", "has no gradient to refine the plan with"),
        ("plan sample --objective comfort --out {tmp}/plan.bmp", "expected a file that ends in .png"),
        ("swap sample sample --tokens 4", "asked for 4 tokens, expected 1 to 3"),
        ("swap sample sample --agent-b nobody", "has no agent 'nobody'"),
        ("find sample", "expected one of --like SCENE_ID:AGENT and --prefix 3,5"),
        ("find sample --like a:b --prefix 1", "expected one of --like"),
        ("find sample --prefix 1 --count 0", "--count is 0"),
        ("find {tmp}/nowhere --prefix 1", "is not a dataset"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: str, sentence: str, tmp_path: Path, capsys: Output
) -> None:
    assert main(arguments.format(tmp=tmp_path).split()) == 2
    assert sentence in complaint_of(capsys)
