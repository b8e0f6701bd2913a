"""Every command as a program of its own, on every store that programs can share."""

from concurrent.futures import ThreadPoolExecutor

from tests.cli.conftest import Place, Run


def test_every_command_runs_as_a_program(shell: Run, place: Place):
    with place.app() as app:
        hold = app.lock("invoice:42", on_lost="ignore").acquire()
        # At once, because most of the time goes into starting them.
        with ThreadPoolExecutor(4) as pool:
            listed = pool.submit(shell, *place.options, "locks", "ls")
            shown = pool.submit(shell, *place.options, "locks", "show", "invoice:42", "--json")
            checked = pool.submit(shell, *place.options, "migrate", "--check")
            examined = pool.submit(shell, *place.options, "doctor", "--json")
            jobs = pool.submit(shell, *place.options, "jobs", "ls")
            queues = pool.submit(shell, *place.options, "queues", "ls")
            replicas = pool.submit(shell, *place.options, "replicas", "ls", "--json")
            recovered = pool.submit(shell, *place.options, "recover")
            pruned = pool.submit(shell, *place.options, "prune")
            timers = pool.submit(shell, *place.options, "timers", "ls", "--json")
        released = shell(*place.options, "locks", "release", "invoice:42", "--all", answer="y\n")
        assert app.locks() == []
        hold.release()
    assert "invoice:42" in listed.result().out
    assert shown.result().json["holders"][0]["fence"] == hold.fence
    assert checked.result().out == "The format is up to date.\n"
    assert examined.result().json["namespace"] == place.namespace
    assert f"Released invoice:42, fence {hold.fence}" in released.out
    assert jobs.result().out == "There are no jobs.\n"
    assert queues.result().out == "No queue has unfinished jobs or is paused.\n"
    assert replicas.result().json["replicas"] == []
    assert recovered.result().out == "Nothing to recover.\n"
    assert pruned.result().out == "Nothing to remove.\n"
    assert timers.result().json["timers"] == []
    locks = [future.result().code for future in (listed, shown, checked, examined)]
    others = [
        future.result().code for future in (jobs, queues, replicas, recovered, pruned, timers)
    ]
    assert {*locks, *others, released.code} == {0}
