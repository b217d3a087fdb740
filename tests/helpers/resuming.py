"""A small run that stops several times, compared with an uninterrupted one."""

from evolve import store


def run_in_parts(call, folder, strategy, settings, stops):
    """Return a run that was resumed after each of the `stops` (generations); it equals an uninterrupted run."""
    words = ("-e", "Pendulum-v1", "--engine", "exact", "-p", 6, "-r", 1, "-d", 3, "-s", 4, "--strategy", strategy)
    words += tuple(word for setting in (*settings, "held_out_episodes=2") for word in ("--set", setting))
    first, *others = stops
    for done in (
        call("run", *words, "-g", stops[-1], "-o", "whole"),
        call("run", *words, "-g", first, "-o", "parts"),
        *(call("run", *words, "-g", stop, "-o", "parts", "--resume") for stop in others),
    ):
        assert done.code == 0, done.err
    whole, parts = (store.read(store.path_of(folder / at, 4)) for at in ("whole", "parts"))
    assert [r.digest for r in whole.records] == [r.digest for r in parts.records]
    assert whole.held_out.returns.tolist() == parts.held_out.returns.tolist()
    done = call("verify", parts.path, "--full")
    assert done.code == 0, done.out + done.err
    return parts
