"""A server that is slow delays its own answer alone, and nothing is left of those that are gone."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.engine_servers import Engines, ask, cause, failure, process_id, until

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


def test_a_server_that_hangs_costs_its_own_answer_alone(engines: Engines) -> None:
    good, hangs, good_too = engines.run("metrics"), engines.run("hang"), engines.run("metrics")
    servers = [running.server() for running in (good, hangs, good_too)]
    began = time.monotonic()
    answers = engines.ask(*servers, within=1.0)
    took = time.monotonic() - began
    assert by_port(answers) == {good.ports[0]: True, hangs.ports[0]: False, good_too.ports[0]: True}
    assert [cause(answer) for answer in answers if not isinstance(answer.samples, Ok)] == [Cause.TIMEOUT]
    assert 0.8 < took < 3, "it is not waited for longer than that"


def test_a_fetch_under_way_is_not_started_twice_and_its_late_answer_is_not_kept(engines: Engines) -> None:
    running = engines.run("slow 0.6")
    server = running.server()
    assert cause(engines.answer_of(server, within=0.3)) is Cause.TIMEOUT
    answer = engines.answer_of(server)  # it waits for the same fetch
    assert isinstance(answer.samples, Ok)
    assert running.visited() == [0]
    assert cause(engines.answer_of(server, within=0.3)) is Cause.TIMEOUT
    until(lambda: engines.source.doing() == "idle")
    assert isinstance(engines.answer_of(server, within=0.3).samples, Ok)  # which has just come
    assert running.visited() == [0, 0]
    assert cause(engines.answer_of(server, within=0.3)) is Cause.TIMEOUT
    until(lambda: engines.source.doing() == "idle")
    time.sleep(1.1)  # what makes an answer old is time alone
    assert cause(engines.answer_of(server, within=0.3)) is Cause.TIMEOUT
    assert running.visited() == [0, 0, 0, 0]


def test_what_hung_the_last_time_is_not_waited_for_as_long_again(engines: Engines) -> None:
    servers = [engines.run("hang").server() for _ in range(3)]
    assert {cause(answer) for answer in engines.ask(*servers, within=0.3)} == {Cause.TIMEOUT}
    began = time.monotonic()
    assert {cause(answer) for answer in engines.ask(*servers, within=4.0)} == {Cause.TIMEOUT}
    assert 0.9 < time.monotonic() - began < 3.5


def test_a_fault_is_logged_when_it_comes_and_when_it_goes(
    engines: Engines, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "llmhost")
    running = engines.run("token sesame")
    endpoint, file = f"http://127.0.0.1:{running.ports[0]}", tmp_path / "token"
    server = running.server(url=endpoint, token_file=file)
    for token in ("wrong", "wrong", "sesame", "sesame"):
        file.write_text(token)
        engines.answer_of(server)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"engine of vllm.service at '{endpoint}': unauthorized ('{endpoint} answers 401')"),
        ("INFO", f"engine of vllm.service at '{endpoint}' answers"),
    ]


def test_a_read_under_way_ends_when_the_source_is_closed(engines: Engines) -> None:
    source = EngineSource(procfs=Path("/proc"))
    server = engines.run("hang").server()
    reader = threading.Thread(target=ask, args=(source, server))
    reader.start()
    until(lambda: source.doing() != "idle")
    began = time.monotonic()
    source.close()
    reader.join(5.0)
    assert time.monotonic() - began < 4


def test_a_source_says_what_it_waits_for(engines: Engines) -> None:
    running = engines.run("hang")
    assert engines.source.doing() == "idle"
    assert cause(engines.answer_of(running.server(), within=0.3)) is Cause.TIMEOUT
    assert engines.source.doing() == f"waiting for http://127.0.0.1:{running.ports[0]}"


def test_close_does_not_wait_for_what_hangs(engines: Engines) -> None:
    source = EngineSource(procfs=Path("/proc"), timeout_seconds=60.0)
    servers = [engines.run(mode).server() for mode in ("hang", "trickled-head", "metrics")]
    assert len(ask(source, *servers, within=0.5)) == 3
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < 10
    until(lambda: threads() == 0)


def test_threads_and_descriptors_stay_as_many_as_there_are_servers(engines: Engines) -> None:
    servers = [engines.run("metrics").server() for _ in range(3)]
    servers.append(engines.run("status 404 Not Found").server())
    assert len(engines.ask(*servers)) == 4
    descriptors = descriptors_now()
    for turn in range(300):  # each of them is there half of the time, and sometimes as another run's
        present = [
            replace(server, run=str(turn // 50)) for place, server in enumerate(servers) if (turn >> place) % 2 == 0
        ]
        assert len(engines.ask(*present)) == len(present)
    assert len(engines.ask()) == 0
    until(lambda: threads() == 0)
    assert len(engines.ask(*servers)) == 4
    assert threads() == 4
    assert descriptors_now() == descriptors


def test_no_more_servers_than_a_bound_are_asked(engines: Engines) -> None:
    # Nothing listens in this process, so nothing is asked; the threads are there all the same.
    servers = [
        EngineServer(unit=UnitId(f"vllm-{number}.service"), engine="vllm", processes=(process_id(os.getpid()),))
        for number in range(MOST_SERVERS + 2)
    ]
    answers = engines.ask(*servers)
    assert threads() == MOST_SERVERS
    assert [cause(answer) for answer in answers].count(Cause.UNKNOWN) == 2
    engines.ask()
    until(lambda: threads() == 0)
    assert Cause.UNKNOWN not in {cause(answer) for answer in engines.ask(*servers[-2:])}


def test_threads_that_do_not_end_count_as_long_as_they_are_there(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
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

    assert {cause(answer) for answer in engines.ask(*crowd("1"), within=0.5)} == {Cause.TIMEOUT}
    assert {cause(answer) for answer in engines.ask(*crowd("2"), within=0.5)} == {Cause.UNKNOWN}
    assert threads() == MOST_SERVERS
    gate.set()
    until(lambda: threads() == 0)
    assert {cause(answer) for answer in engines.ask(*crowd("3"))} == {Cause.REFUSED}


def test_a_unit_full_of_servers_costs_no_other_unit_its_own(engines: Engines) -> None:
    me = process_id(os.getpid())
    fakes = [
        EngineServer(unit=UnitId("a.service"), engine="vllm", processes=(replace(me, start_ticks=number),))
        for number in range(MOST_SERVERS + 10)
    ]
    in_the_crowd = engines.run("metrics").server("a.service")
    configured = engines.run("metrics")
    url = f"http://127.0.0.1:{configured.ports[0]}"
    servers = [engines.run("metrics").server("b.service"), configured.server("c.service", url=url)]
    answers = engines.ask(*fakes, in_the_crowd, *servers)
    assert threads() == MOST_PER_UNIT + 2
    assert {answer.unit.name for answer in answers if isinstance(answer.samples, Ok)} == {
        "a.service",
        "b.service",
        "c.service",
    }
    engines.ask()
    until(lambda: threads() == 0)
    nine = [
        replace(fakes[0], run=str(number), argv=("vllm", "serve", "--port", str(number))) for number in range(1, 10)
    ]
    details = [failure(answer).detail for answer in engines.ask(*nine)]
    assert details.count("its process has ended") == MOST_PER_UNIT
    assert details.count(f"more servers than are asked: {MOST_PER_UNIT} of a unit, {MOST_SERVERS} in all") == 1


def test_a_configured_server_is_asked_though_all_threads_were_others(engines: Engines) -> None:
    fakes = [
        EngineServer(
            unit=UnitId(f"a-{number}.service"),
            engine="vllm",
            processes=(replace(process_id(os.getpid()), start_ticks=number),),
            argv=("vllm", "serve", "--port", "1"),
        )
        for number in range(MOST_SERVERS)
    ]
    running = engines.run("metrics")
    configured = running.server("z.service", url=f"http://127.0.0.1:{running.ports[0]}")
    assert len(engines.ask(*fakes)) == threads() == MOST_SERVERS
    until(lambda: any(isinstance(answer.samples, Ok) for answer in engines.ask(*fakes, configured)))
    assert threads() == MOST_SERVERS


def test_a_bug_in_one_visit_is_that_servers_unknown_answer(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = engines.run("metrics"), engines.run("metrics")

    def found(procfs: Path, server: EngineServer) -> tuple[Candidate, ...]:
        if server == bad.server():
            raise RuntimeError("a bug")
        return real(procfs, server)

    real = discover.discover
    monkeypatch.setattr(server_client, "discover", found)
    answers = engines.ask(good.server(), bad.server())
    assert sorted(isinstance(answer.samples, Ok) for answer in answers) == [False, True]
