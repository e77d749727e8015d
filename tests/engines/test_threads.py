"""A server that is slow delays its own answer alone, and nothing is left of those that are gone."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.engine_servers import Starter, ask, ask_one, cause, failure, process_id, until

from llmhost.model.engine import EngineAnswer, EngineServer
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Ok
from llmhost.sources.base import SourceError
from llmhost.sources.engine import discover, server_client
from llmhost.sources.engine.discover import Candidate
from llmhost.sources.engine.source import MOST_PER_UNIT, MOST_SERVERS, EngineSource


def threads() -> int:
    return sum(thread.name.startswith("llmhost-engine") for thread in threading.enumerate())


def descriptors_now() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def by_port(answers: tuple[EngineAnswer, ...]) -> dict[int, bool]:
    return {int(answer.endpoint.rpartition(":")[2]): isinstance(answer.samples, Ok) for answer in answers}


def test_a_server_that_hangs_costs_its_own_answer_alone(run_engine: Starter, source: EngineSource) -> None:
    good, hangs, good_too = run_engine("metrics"), run_engine("hang"), run_engine("metrics")
    servers = [running.server() for running in (good, hangs, good_too)]
    began = time.monotonic()
    answers = ask(source, *servers, within=1.0)
    took = time.monotonic() - began
    assert by_port(answers) == {good.ports[0]: True, hangs.ports[0]: False, good_too.ports[0]: True}
    assert [cause(answer) for answer in answers if not isinstance(answer.samples, Ok)] == [Cause.TIMEOUT]
    assert 0.8 < took < 3, "it is not waited for longer than that"


def test_a_fetch_under_way_is_not_started_twice_and_its_late_answer_is_not_kept(
    run_engine: Starter, source: EngineSource
) -> None:
    running = run_engine("slow 0.6")
    server = running.server()
    assert cause(ask_one(source, server, within=0.3)) is Cause.TIMEOUT
    answer = ask_one(source, server)  # it waits for the same fetch
    assert isinstance(answer.samples, Ok)
    assert running.visited() == [0]
    assert cause(ask_one(source, server, within=0.3)) is Cause.TIMEOUT
    until(lambda: source.doing() == "idle")
    assert isinstance(ask_one(source, server, within=0.3).samples, Ok)  # which has just come
    assert running.visited() == [0, 0]
    assert cause(ask_one(source, server, within=0.3)) is Cause.TIMEOUT
    until(lambda: source.doing() == "idle")
    time.sleep(1.1)  # what makes an answer old is time alone
    assert cause(ask_one(source, server, within=0.3)) is Cause.TIMEOUT
    assert running.visited() == [0, 0, 0, 0]


def test_what_hung_the_last_time_is_not_waited_for_as_long_again(run_engine: Starter, source: EngineSource) -> None:
    servers = [run_engine("hang").server() for _ in range(3)]
    assert {cause(answer) for answer in ask(source, *servers, within=0.3)} == {Cause.TIMEOUT}
    began = time.monotonic()
    assert {cause(answer) for answer in ask(source, *servers, within=4.0)} == {Cause.TIMEOUT}
    assert 0.9 < time.monotonic() - began < 3.5


def test_a_fault_is_logged_when_it_comes_and_when_it_goes(
    run_engine: Starter, source: EngineSource, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "llmhost")
    running = run_engine("token sesame")
    endpoint, file = f"http://127.0.0.1:{running.ports[0]}", tmp_path / "token"
    server = running.server(url=endpoint, token_file=file)
    for token in ("wrong", "wrong", "sesame", "sesame"):
        file.write_text(token)
        ask_one(source, server)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"engine of vllm.service at '{endpoint}': unauthorized ('{endpoint} answers 401')"),
        ("INFO", f"engine of vllm.service at '{endpoint}' answers"),
    ]


def test_a_read_under_way_ends_when_the_source_is_closed(run_engine: Starter) -> None:
    source = EngineSource(procfs=Path("/proc"))
    server = run_engine("hang").server()
    reader = threading.Thread(target=ask, args=(source, server))
    reader.start()
    until(lambda: source.doing() != "idle")
    began = time.monotonic()
    source.close()
    reader.join(5.0)
    assert time.monotonic() - began < 4


def test_a_reader_can_be_told_what_is_waited_for(run_engine: Starter, source: EngineSource) -> None:
    running = run_engine("hang")
    assert source.doing() == "idle"
    assert cause(ask_one(source, running.server(), within=0.3)) is Cause.TIMEOUT
    assert source.doing() == f"waiting for http://127.0.0.1:{running.ports[0]}"


def test_close_does_not_wait_for_what_hangs(run_engine: Starter) -> None:
    source = EngineSource(procfs=Path("/proc"), timeout_seconds=60.0)
    servers = [run_engine(mode).server() for mode in ("hang", "trickled-head", "metrics")]
    assert len(ask(source, *servers, within=0.5)) == 3
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < 10
    until(lambda: threads() == 0)


def test_threads_and_descriptors_stay_as_many_as_there_are_servers(run_engine: Starter, source: EngineSource) -> None:
    servers = [run_engine("metrics").server() for _ in range(3)]
    servers.append(run_engine("status 404 Not Found").server())
    assert len(ask(source, *servers)) == 4
    descriptors = descriptors_now()
    for turn in range(300):  # each of them is there half of the time, and sometimes as another run's
        present = [
            replace(server, run=str(turn // 50)) for place, server in enumerate(servers) if (turn >> place) % 2 == 0
        ]
        assert len(ask(source, *present)) == len(present)
    assert len(ask(source)) == 0
    until(lambda: threads() == 0)
    assert len(ask(source, *servers)) == 4
    assert threads() == 4
    assert descriptors_now() == descriptors


def test_no_more_servers_than_a_bound_are_asked(source: EngineSource) -> None:
    # Nothing listens in this process, so nothing is asked; the threads are there all the same.
    servers = [
        EngineServer(unit=UnitId(f"vllm-{number}.service"), engine="vllm", processes=(process_id(os.getpid()),))
        for number in range(MOST_SERVERS + 2)
    ]
    answers = ask(source, *servers)
    assert threads() == MOST_SERVERS
    assert [cause(answer) for answer in answers].count(Cause.UNKNOWN) == 2
    ask(source)
    until(lambda: threads() == 0)
    assert Cause.UNKNOWN not in {cause(answer) for answer in ask(source, *servers[-2:])}


def test_threads_that_do_not_end_count_as_long_as_they_are_there(
    source: EngineSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def found(_procfs: Path, _server: EngineServer) -> tuple[Candidate, ...]:
        gate.wait(10.0)
        raise SourceError(Cause.REFUSED)

    monkeypatch.setattr(server_client, "discover", found)

    def crowd(run: str) -> list[EngineServer]:
        return [
            EngineServer(unit=UnitId(f"vllm-{number}.service"), engine="vllm", run=run)
            for number in range(MOST_SERVERS)
        ]

    assert {cause(answer) for answer in ask(source, *crowd("1"), within=0.5)} == {Cause.TIMEOUT}
    assert {cause(answer) for answer in ask(source, *crowd("2"), within=0.5)} == {Cause.UNKNOWN}
    assert threads() == MOST_SERVERS
    gate.set()
    until(lambda: threads() == 0)
    assert {cause(answer) for answer in ask(source, *crowd("3"))} == {Cause.REFUSED}


def test_a_unit_full_of_servers_costs_no_other_unit_its_own(run_engine: Starter, source: EngineSource) -> None:
    me = process_id(os.getpid())
    fakes = [
        EngineServer(unit=UnitId("a.service"), engine="vllm", processes=(replace(me, start_ticks=number),))
        for number in range(MOST_SERVERS + 10)
    ]
    in_the_crowd = run_engine("metrics").server("a.service")
    configured = run_engine("metrics")
    url = f"http://127.0.0.1:{configured.ports[0]}"
    others = [run_engine("metrics").server("b.service"), configured.server("c.service", url=url)]
    answers = ask(source, *fakes, in_the_crowd, *others)
    assert threads() == MOST_PER_UNIT + 2
    assert {answer.unit.name for answer in answers if isinstance(answer.samples, Ok)} == {
        "a.service",
        "b.service",
        "c.service",
    }
    ask(source)
    until(lambda: threads() == 0)
    nine = [
        replace(fakes[0], run=str(number), argv=("vllm", "serve", "--port", str(number))) for number in range(1, 10)
    ]
    details = [failure(answer).detail for answer in ask(source, *nine)]
    assert details.count("its process has ended") == MOST_PER_UNIT
    assert details.count(f"more servers than are asked: {MOST_PER_UNIT} of a unit, {MOST_SERVERS} in all") == 1


def test_a_configured_server_is_asked_though_all_threads_were_others(run_engine: Starter, source: EngineSource) -> None:
    fakes = [
        EngineServer(
            unit=UnitId(f"a-{number}.service"),
            engine="vllm",
            processes=(replace(process_id(os.getpid()), start_ticks=number),),
            argv=("vllm", "serve", "--port", "1"),
        )
        for number in range(MOST_SERVERS)
    ]
    running = run_engine("metrics")
    configured = running.server("z.service", url=f"http://127.0.0.1:{running.ports[0]}")
    assert len(ask(source, *fakes)) == threads() == MOST_SERVERS
    until(lambda: any(isinstance(answer.samples, Ok) for answer in ask(source, *fakes, configured)))
    assert threads() == MOST_SERVERS


def test_a_bug_in_one_visit_is_that_servers_unknown_answer(
    run_engine: Starter, source: EngineSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = run_engine("metrics"), run_engine("metrics")

    def found(procfs: Path, server: EngineServer) -> tuple[Candidate, ...]:
        if server == bad.server():
            raise RuntimeError("a bug")
        return real(procfs, server)

    real = discover.discover
    monkeypatch.setattr(server_client, "discover", found)
    answers = ask(source, good.server(), bad.server())
    assert sorted(isinstance(answer.samples, Ok) for answer in answers) == [False, True]
