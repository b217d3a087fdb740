"""What is said at the end of a run: at most three lines that can be copied."""

import shlex
import sys
from pathlib import Path

from evolve.cli import parser
from evolve.cli.parser import command_line, how_to_resume, parser_of, steps_after
from evolve.cli.run import load
from evolve.config import Config
from evolve.errors import Stopped, install_command
from evolve.training import prepare
from evolve.training.plan import plan_runs


def test_three_lines_that_can_be_copied():
    path = Path("runs/my walker/seed-1.h5")
    where, film, verify = steps_after([path]).splitlines()
    assert where == "Run file: runs/my walker/seed-1.h5"
    film, verify = (line.partition(": ")[2] for line in (film, verify))
    begin = command_line("replay")
    assert film.startswith(f"{begin} ")
    assert parser_of("replay").parse_args(shlex.split(film.removeprefix(begin))).file == path
    assert parser_of("verify").parse_args(shlex.split(verify.removeprefix(command_line("verify")))).files == [path]


def test_several_run_files_are_named_by_their_directory():
    where, film, verify = steps_after([Path("runs/s/a/seed-1.h5"), Path("runs/s/b/seed-1.h5")]).splitlines()
    assert where == "Run files: 2 in runs/s"
    assert film.startswith("Film the champion of the first: ")
    assert "runs/s/a/seed-1.h5 --held-out --video" in film
    assert verify.startswith("Verify the first: ")
    assert steps_after([Path("seed-1.h5"), Path("seed-2.h5")]).splitlines()[0] == "Run files: 2 in ."


def test_a_champion_of_a_task_without_a_picture_is_drawn_instead():
    begin, _, draw = steps_after([Path("seed-1.h5")], can_film=False).splitlines()[1].partition(": ")
    assert begin == "Draw its champion"
    words = shlex.split(draw.removeprefix(command_line("plot")))
    assert parser_of("plot").parse_args(words).network


def test_a_film_is_offered_if_the_environment_declares_frames(call):
    few = ("-g", 1, "-p", 2, "-r", 1, "-d", 2, "--set", "held_out_episodes=1", "-a", "mlp")
    for env, offered in (("toys:Values-v0", "Draw its champion: "), ("CartPole-v1", "Film its champion: ")):
        assert offered in call("run", "-e", env, *few).ok().out


def test_an_environment_whose_close_hangs_does_not_hang_a_complete_run(call):
    few = ("-g", 1, "-p", 2, "-r", 1, "-d", 2, "--set", "held_out_episodes=0", "-a", "mlp")
    call("run", "-e", "toys:Jams", *few, "--set", "env.max_episode_seconds=0.1").ok()


def test_the_library_of_films_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(parser.importlib.util, "find_spec", lambda _: None)
    assert steps_after([Path("seed-1.h5")]).splitlines()[1].endswith(f"# needs: {install_command('video')}")


def test_the_command_is_named_as_the_shell_finds_it(monkeypatch, tmp_path):
    script = tmp_path / "evolve"
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_line("verify", "a b.h5") == "evolve verify 'a b.h5'"
    monkeypatch.setenv("PATH", "/nowhere")
    assert command_line("verify", "a.h5") == f"{script} verify a.h5"  # started by its path
    script.rename(tmp_path / "python")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_line("verify", "a.h5") == "python -m evolve verify a.h5"


def test_how_to_resume():
    one, two = (plan_runs([prepare(Config(seeds=seeds))]) for seeds in ((3,), (3, 4)))
    line = command_line("run", "--resume", "runs/CartPole-v1-hebbian-dag/seed-3.h5")
    assert how_to_resume(one, 1) == line
    assert how_to_resume(one, 4) == f"mpirun -n 4 {line}"
    assert how_to_resume(two, 4) == "the same command line, and --resume"
    assert how_to_resume(two, 4, overwrite=True) == "the same command line, with --resume in place of --overwrite"
    assert how_to_resume(one, 1, ["--report"]) == f"{line} --report"


def test_options_that_the_file_lacks_are_given_again():
    assert load(["--report", "--tensorboard", "a b"]).options_to_repeat() == ["--report", "--tensorboard", "a b"]
    assert load([]).options_to_repeat() == []


def test_no_command_resumes_a_file_that_was_moved(call, tmp_path, monkeypatch):
    def move_and_stop(*_):
        (tmp_path / "out").rename(tmp_path / "moved")
        raise Stopped("stopped by SIGTERM")
        yield

    monkeypatch.setattr("evolve.cli.run.iterate", move_and_stop)
    done = call("run", "--engine", "exact", "--backend", "numpy", "--set", "compute.check=false", "-o", "out")
    said = "out/seed-0.h5 was moved or deleted, with 0 complete generations; name its new place after --resume\n"
    assert (done.code, done.err) == (75, f"evolve.run: stopped by SIGTERM: {said}")
