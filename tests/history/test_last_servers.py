"""Servers of a unit in the history, and how long they are kept."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.observed import observed
from tests.fakes.unit_lives import Life
from tests.fakes.values import GIB, gpu, in_service, memory, process, settings, snapshot, unit

from llmhost.config.schema import Config
from llmhost.derive.facts import derive
from llmhost.derive.history.events import with_event
from llmhost.derive.remembered import MOST_UNITS, remembered_units
from llmhost.model.engine_arguments import EngineArguments
from llmhost.model.gpu import GpuHolder
from llmhost.model.history.history import History, LastServer, LastServers
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.process import Process, Role
from llmhost.model.reading import Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit, UnitSettings
from llmhost.model.unit_event import UnitEvent
from llmhost.state.history_document import document_of, encode_cache, history_of

DEFAULT = 0.92
FILE: Mapping[str, Any] = {"environment_files": ("/etc/vllm/secrets.env",)}
ME = UnitId("chat.service")
SERVICE = in_service("chat.service")
SCRIPT = settings("/opt/start", {"CUDA_VISIBLE_DEVICES": "2,3"})


def server(pid: int, words: str, start: int = 1010) -> Process:
    argv = ("/v/bin/vllm", "serve", "m", *words.split())
    return process(pid, SERVICE, start=start, engine="vllm", role=Role.API_SERVER, argv=argv)


def seen(*there: Process, invocation_id: str = "a", watched: Unit | None = None) -> Snapshot:
    up = unit("chat.service", settings=SCRIPT, invocation_id=invocation_id)
    return snapshot(processes=there, units=[watched or up])


def shares(history: History, of: UnitId = ME) -> list[float | None]:
    servers = history.last_servers_of(of)
    return [each.arguments.utilization for each in servers if each.arguments is not None]


def test_a_server_is_remembered_by_what_it_needs_and_by_no_word_of_its_command() -> None:
    history = observed(seen(server(10, "--gpu-memory-utilization 0.4 -tp 2 --api-key s3cret --port 81")))
    arguments = EngineArguments(utilization=0.4, utilization_given=True, tensor_parallel=2, port=81)
    remembered = LastServer(engine="vllm", arguments=arguments, visible_gpus="2,3")
    assert history.last_servers == {ME: LastServers(servers=(remembered,), invocation_id="a", seen=1)}
    content = document_of(history, saved_at=0.0, llmhost="1", cache=encode_cache(), most_bytes=1 << 20)
    assert history_of(content).last_servers == history.last_servers
    assert b"s3cret" not in content


def test_a_run_keeps_all_servers_that_it_had_and_the_next_has_its_own() -> None:
    first, second = server(10, "--gpu-memory-utilization 0.4"), server(11, "--gpu-memory-utilization 0.5", 1020)
    both = observed(seen(first), seen(first, second))
    assert shares(both) == [0.4, 0.5]
    assert shares(observed(seen(second), history=both)) == [0.4, 0.5]
    # before a next run has begun its servers, and while there is none, they are as they were
    assert shares(observed(seen(invocation_id="b"), history=both)) == [0.4, 0.5]
    down = unit("chat.service", "failed", "failed", settings=SCRIPT, invocation_id="a")
    stub = unit("chat.service", "inactive", "dead", load_state="stub", settings=None)
    assert observed(seen(watched=down), seen(watched=stub), history=both).last_servers == both.last_servers
    assert shares(observed(seen(second, invocation_id="b"), history=both)) == [0.5]


def test_so_many_servers_as_no_unit_has_are_not_remembered() -> None:
    two = observed(seen(server(10, "-tp 2"), server(11, "-tp 2")))
    crowd = [server(100 + number, "-tp 1") for number in range(65)]
    assert observed(seen(*crowd, invocation_id="b"), history=two).last_servers == two.last_servers
    assert len(observed(seen(*crowd[1:], invocation_id="b"), history=two).last_servers_of(ME)) == 64


def test_a_unit_that_says_what_it_runs_is_remembered_before_it_runs() -> None:
    written = settings("vllm serve m --gpu-memory-utilization 0.7")
    down = unit("chat.service", "inactive", "dead", settings=written)
    assert shares(observed(seen(watched=down))) == [0.7]
    changed = unit("chat.service", "inactive", "dead", settings=settings("vllm serve m --gpu-memory-utilization 0.8"))
    assert shares(observed(seen(watched=down), seen(watched=changed))) == [0.8]


@pytest.mark.parametrize(
    "words", ["-tp 99999999999999999999", f"--device-ids {'GPU-1,' * 1000}", "-dp 18446744073709551616 -pp 2"]
)
def test_what_no_host_has_is_remembered_as_unknown(words: str) -> None:
    history = observed(seen(server(10, words)))
    content = document_of(history, saved_at=0.0, llmhost="1", cache=encode_cache(), most_bytes=1 << 20)
    assert len(content) < 2000
    (read,) = history_of(content).last_servers_of(ME)
    assert read.arguments is not None
    arguments = read.arguments
    assert None in (arguments.tensor_parallel, arguments.gpus, arguments.data_parallel)


def test_those_that_were_seen_last_are_looked_at_again() -> None:
    units = {UnitId(f"run-{number:03}.service"): UnitHistory(last_seen_at=float(number)) for number in range(500)}
    units[UnitId("theirs.service", "user@1000")] = UnitHistory(last_seen_at=900.0)
    names = remembered_units(History(units=units))
    assert (len(names), names[0]) == (MOST_UNITS, "run-499.service")


@pytest.mark.parametrize(
    ("command", "given", "ran", "expected"),
    [
        # what is not known is as it was in the last run
        ("vllm serve $MODEL $ARGS", FILE, "--gpu-memory-utilization 0.35", 0.35),
        ("vllm serve $MODEL $ARGS -tp 1", FILE, "--gpu-memory-utilization 0.35 -tp 1", 0.35),
        ("vllm serve m --gpu-memory-utilization ${SHARE}", FILE, "--gpu-memory-utilization 0.35", 0.35),
        ("bash -c 'source /etc/vllm.env; exec vllm serve m $ARGS'", {}, "-tp 1", DEFAULT),
        # so is everything where the command is a script, or systemd has unloaded the unit
        ("/opt/start", {}, "--gpu-memory-utilization 0.35", 0.35),
        (None, {}, "--gpu-memory-utilization 0.35", 0.35),
        ("/opt/start", {}, "--config /etc/vllm.yml", None),
        # what the command itself says goes before it
        ("vllm serve m --gpu-memory-utilization 0.5", {}, "--gpu-memory-utilization 0.35", 0.5),
        ("vllm serve $MODEL --gpu-memory-utilization 0.5", FILE, "--gpu-memory-utilization 0.35", 0.5),
        ("vllm serve m", {}, "--gpu-memory-utilization 0.35", DEFAULT),
        ("vllm serve $MODEL --config /etc/vllm.yml", FILE, "", None),
        ("vllm serve m --config /etc/vllm.yml", {}, "", None),
        # another engine says nothing of this one
        ("sglang serve --model-path m $ARGS", FILE, "--gpu-memory-utilization 0.35", None),
    ],
)
def test_what_a_units_settings_do_not_say_is_what_it_was_started_with_last(
    command: str | None, given: Mapping[str, Any], ran: str, expected: float | None
) -> None:
    written = UnitSettings(exec_start=(tuple(shlex.split(command or "vllm serve $ARGS")),), **given)
    place = in_service("vllm.service")
    words = f"/v/bin/vllm serve m {ran}"
    server = process(10, place, start=950, engine="vllm", role=Role.API_SERVER, argv=tuple(words.split()))
    core = process(11, place, start=960, ppid=10, engine="vllm", role=Role.CORE, argv=("VLLM::EngineCore",))
    holder = GpuHolder(pid=11, process=core.id, used_bytes=20 * GIB)
    busy = gpu(1, memory=memory(20 * GIB), holders=Ok((holder,)))
    up = unit(settings=written, invocation_id="a")
    history = observed(snapshot(gpus=[gpu(0), busy], processes=[server, core], units=[up]))
    down = unit(active="failed", sub="failed", settings=written)
    if command is None:
        down = unit(active="inactive", sub="dead", load_state="stub", settings=None)
    found = derive(snapshot(gpus=[gpu(0), gpu(1)], processes=[], units=[down]), Config(), history).units
    assert isinstance(found, Ok)
    needed = found.value[0].needed
    found_shares = {uuid: size / (79 * GIB) for uuid, size in needed.value.items()} if isinstance(needed, Ok) else None
    assert found_shares == (None if expected is None else {GpuUuid("GPU-1"): pytest.approx(expected)})


def test_a_unit_that_ran_between_two_observations_is_remembered_by_its_settings() -> None:
    life = Life(load_state="stub", settings=None, unit_file_state="disabled")
    history = History()
    loaded = replace(life.unit, load_state="loaded", settings=settings("vllm serve m --gpu-memory-utilization 0.6"))
    running = replace(loaded, active_state="active", sub_state="running", invocation_id="a", main_pid=5)
    stops = replace(running, active_state="deactivating", sub_state="stop-sigterm", job=9)
    stopped = replace(stops, active_state="inactive", sub_state="dead", main_pid=0, state_change_monotonic=4.0)
    for at, now in enumerate((life.unit, loaded, running, stops, stopped, life.unit)):
        history, _ = with_event(history, UnitEvent(unit=now, at=1000.0 + at, at_monotonic=float(at), gap=not at))
    assert shares(history, UnitId("vllm.service")) == [0.6]
