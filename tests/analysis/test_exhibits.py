"""Pictures, films and pages of the Python interface: a notebook shows them, and `save` writes them."""

import base64
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import finished, launcher

import evolve
from evolve.analysis import video
from evolve.errors import InputError, RunError

SMALL = {"generations": 3, "population": 6, "episodes": 2, "held_out_episodes": 3}
ENV = {"id": "CartPole-v1", "max_episode_steps": 12}


@pytest.fixture(scope="module", autouse=True)
def small_films():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(video, "PAGE_WIDTH", 320)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    network = {"name": "hebbian-dag", "hidden": [2]}
    return evolve.train(**SMALL, env=ENV, network=network, seed=1, output=tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def film(run):
    return run.film(seconds=0.1)


def test_a_picture_is_shown_and_saved(run, tmp_path):
    picture = run.plot(over="steps")
    shown, sizes = picture._repr_mimebundle_(include=None, exclude=None)  # as notebooks call it
    png, size = shown["image/png"], sizes["image/png"]
    assert png.startswith(b"\x89PNG")
    assert size["width"] == 768
    assert picture.figure.axes[0].get_ylabel() == "mean return"
    assert "environment steps" in repr(picture)
    for name, begin in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        assert picture.save(str(tmp_path / name)) == tmp_path / name
        assert (tmp_path / name).read_bytes().startswith(begin)
    with pytest.raises(InputError, match=r"\.png or \.svg or \.pdf"):
        picture.save(tmp_path / "a.txt")
    with pytest.raises(InputError, match=r"^over: expected 'generation' or 'steps' or 'time', got hours"):
        run.plot(over="hours")
    with pytest.raises(InputError, match=r"^over: expected .* got \['steps'\]"):
        run.plot(over=["steps"])


def test_the_network_of_any_champion_is_drawn(run):
    assert "held-out champion" in run.plot_network().figure.get_suptitle()
    assert "best of generation 1" in run.plot_network(generation=1).title
    assert "trace" in run.plot_network(traces=True).figure.axes[0].get_legend().get_title().get_text()
    with pytest.raises(InputError, match=r"^generation: expected one of 0 to 2, got 3"):
        run.plot_network(generation=3)


def test_a_film_holds_itself_and_has_a_stable_size(film):
    shown = ElementTree.fromstring(f"<p>{film._repr_html_().replace('controls loop muted playsinline', '')}</p>")
    player = shown.find("video")
    kind, _, data = player.get("src").partition(";base64,")
    assert kind == "data:video/mp4"
    assert base64.b64decode(data)[4:8] == b"ftyp"
    width, height = int(player.get("width")), int(player.get("height"))
    assert f"aspect-ratio:{width}/{height}" in player.get("style")
    assert width > height > 100
    assert re.fullmatch(r"held-out champion, the episode of median return, number \d: return .*", film.title)
    assert shown.find("div").text == film.title


def test_a_film_is_saved_in_the_format_of_its_ending(film, tmp_path):
    assert film.save(tmp_path / "a.mp4").read_bytes()[4:8] == b"ftyp"
    assert film.save(tmp_path / "a.gif").read_bytes().startswith(b"GIF89a")
    with pytest.raises(InputError, match=r"\.mp4 or \.gif"):
        film.save(tmp_path / "a.webm")


def test_a_film_shows_the_champions_of_several_generations(run):
    film = run.film(np.array([0, 2]), episode=1, seconds=0.1)
    titles = film.title.split("; ")
    assert [title.partition(":")[0] for title in titles] == [f"best of generation {n}, episode 1" for n in (0, 2)]
    best = run.generations[2].record
    assert float(titles[1].rpartition(" ")[2]) == best.returns[best.champion_candidate, 1]
    for wrong, message in (
        (3, "generation: expected one of 0 to 2"),
        ([], "generation: expected one or several"),
        ("02", r"generation: .*'02'"),
    ):
        with pytest.raises(InputError, match=message):
            run.film(wrong)
    with pytest.raises(InputError, match=r"^seconds: expected a time above 0, got 0"):
        run.film(seconds=0)


def test_a_champion_is_filmed_in_a_changed_environment(run):
    film = run.film(episode=1, seconds=0.1, env={"max_episode_steps": 4})
    assert film.title == "held-out champion, episode 1, env.max_episode_steps=4: return 4.00"
    with pytest.raises(InputError, match="the champion's 4 observations and 2 actions"):
        run.film(env="Pendulum-v1")
    without_learning = run.film(episode=1, seconds=0.1, network={"plasticity": 0.0})
    returned = run.evaluate(2, network={"plasticity": 0.0}).returns[1]
    assert without_learning.title == f"held-out champion, episode 1, network.plasticity=0.0: return {returned:.2f}"
    with pytest.raises(InputError, match="settings with which a hebbian-dag has the champion's connections"):
        run.film(network={"hidden": [3]})


def test_a_champion_file_has_a_film_and_a_network(run, tmp_path):
    champion = evolve.load(run.export(tmp_path / "a.champion"))
    assert champion.film(seconds=0.1).title.startswith("held-out champion")
    assert "acting connections" in champion.plot_network().figure.get_suptitle()
    assert "held-out return" in champion._repr_html_()
    with pytest.raises(InputError, match=r"^generation: expected none with .*, which has the final champion alone"):
        champion.film(generation=1)


def test_a_report_is_a_page_in_a_frame(run, tmp_path):
    page = run.report(quick=True)
    frame = ElementTree.fromstring(page._repr_html_())
    assert frame.tag == "iframe"
    assert frame.get("srcdoc").split() == page.text.split()  # XML turns line ends of an attribute into spaces
    assert page.save(tmp_path / "a.html").read_text() == page.text
    assert run.digest in page.text
    assert "No film was made, as no episode was played." in page.text


def test_a_run_without_a_generation_has_nothing_to_show(run, tmp_path):
    generations = evolve.iterate(**SMALL, env=ENV, seed=2, output=tmp_path)
    next(generations)
    generations.close()
    assert "1 of 3, not complete" in evolve.load(tmp_path / "seed-2.h5")._repr_html_()
    from evolve import store

    run = evolve.load(run.path)
    empty = store.create(tmp_path / "seed-3.h5", store.read(run.path).header)
    empty.close()
    for make in ("plot", "plot_network", "film", "report"):
        with pytest.raises(RunError, match="no generation is complete yet"):
            getattr(evolve.load(tmp_path / "seed-3.h5"), make)()


def test_a_run_is_a_table_in_a_notebook(run):
    table = ElementTree.fromstring(run._repr_html_())
    texts = ["".join(row.itertext()) for row in table]
    assert texts[0] == "CartPole-v1, hebbian-dag, prune, seed 1"
    assert texts[1] == "generations3 of 3"
    assert texts[-2:] == [f"digest{run.digest}", f"file{run.path}"]
    mean = f"{run.held_out.mean:.2f}"
    assert any(text.startswith(f"held-out returnmean {mean} over 3 episodes") for text in texts)


@pytest.mark.parametrize(("library", "make"), [("matplotlib", "plot"), ("av", "film"), ("jinja2", "report")])
def test_a_missing_library_is_named_with_its_cure(library, make, run, absent):
    absent(library)
    with pytest.raises(InputError, match=r"Install it: pip install .*\[(plot|video|report)\]"):
        getattr(run, make)()


def test_the_interface_imports_no_library_that_draws(tmp_path):
    program = "import evolve, sys; evolve.train; print(*{'matplotlib', 'jinja2', 'av', 'PIL'} & set(sys.modules))"
    done = finished([sys.executable, "-c", program], tmp_path)
    assert (done.code, done.out.strip(), done.err) == (0, "", "")


def test_all_ranks_get_the_exhibits_and_rank_0_saves(run, tmp_path):
    program = f"""
import evolve
from evolve.analysis import video
video.PAGE_WIDTH = 320
run = evolve.load({str(run.path)!r})
film = run.film(seconds=0.1)
saved = run.plot().save("a.png"), film.save("a.mp4")
# In one piece, so that the lines of two ranks do not mix.
print(f"{{film.title}} {{len(film._repr_html_())}} {{saved}} {{run.report(quick=True).title}}\\n", end="")
"""
    done = finished([*launcher(2), sys.executable, "-c", program], tmp_path)
    assert done.code == 0, done.err
    one, other = done.out.splitlines()
    assert one == other
    assert (tmp_path / "a.mp4").read_bytes()[4:8] == b"ftyp"
