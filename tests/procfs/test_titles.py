"""Process titles that the config names."""

import time
from pathlib import Path

import pytest
from tests.fakes.procfs import write_proc

from llmhost.assemble.exporter import Exporter
from llmhost.collect.clock import SystemClock
from llmhost.config.load import parse
from llmhost.config.paths import Paths
from llmhost.model.process import Role
from llmhost.model.reading import Ok
from llmhost.model.titles import NO_TITLES, Titles
from llmhost.sources.procfs import ProcfsSource

ROWS = Titles(
    [
        ("acme::Engine*", "acme", Role.CORE),
        ("*/acme-server --listen *", "acme", Role.API_SERVER),
        ("VLLM::Worker*", "mine", Role.WORKER),
        ("acme[12]", "acme", Role.OTHER),
    ]
)


@pytest.mark.parametrize(
    ("argv", "comm", "expected"),
    [
        (("acme::EngineCore 0   ",), "acme::EngineCo", ("acme", Role.CORE)),
        (("/opt/bin/acme-server", "--listen", ":1"), "acme-server", ("acme", Role.API_SERVER)),
        (("/opt/bin/acme-server", "--help"), "acme-server", ("", Role.OTHER)),
        (("VLLM::Worker_TP0",), "VLLM::Worker_TP", ("mine", Role.WORKER)),  # before the table
        (("VLLM::EngineCore",), "VLLM::EngineCor", ("vllm", Role.CORE)),
        (("acme1", "--x"), "acme1", ("acme", Role.OTHER)),  # the program alone
        (("acme3",), "acme1", ("", Role.OTHER)),
        ((), "acme2", ("acme", Role.OTHER)),
        (("ACME1",), "acme", ("", Role.OTHER)),  # case counts
        (("x acme::EngineCore",), "x", ("", Role.OTHER)),  # all of it is matched
    ],
)
def test_a_row_goes_before_the_table(argv: tuple[str, ...], comm: str, expected: tuple[str, Role]) -> None:
    assert ROWS.classify(argv, comm) == expected


def test_the_first_row_that_matches_decides() -> None:
    rows = Titles([("a*", "one", Role.CORE), ("ab*", "two", Role.WORKER)])
    assert rows.classify(("abc",), "abc") == ("one", Role.CORE)


def test_titles_are_equal_by_their_rows() -> None:
    row = ("a*", "one", Role.CORE)
    assert Titles([row]) == Titles([row])
    assert Titles([row]) != NO_TITLES
    assert Titles() == NO_TITLES
    assert len({Titles([row]), Titles([row])}) == 1


def test_other_titles_are_in_force_from_the_next_read_on(tmp_path: Path) -> None:
    """Also for processes that are old and not due, and a zombie keeps what it was."""
    write_proc(
        tmp_path,
        [{"pid": 10, "start": 1, "argv": ["acme::Engines"]}, {"pid": 11, "start": 1, "argv": ["VLLM::EngineCore"]}],
    )
    source = ProcfsSource(procfs=tmp_path, trust_pid_namespace=False, titles=ROWS, clock=lambda: 100_000.0)

    def identities() -> list[tuple[str, Role]]:
        by_pid = source.read(time.monotonic() + 10).by_pid
        return [(by_pid[pid].engine, by_pid[pid].role) for pid in (10, 11)]

    assert identities() == [("acme", Role.CORE), ("vllm", Role.CORE)]
    source.configure(titles=Titles([("VLLM*", "mine", Role.WORKER)]))
    assert identities() == [("", Role.OTHER), ("mine", Role.WORKER)]
    source.configure(titles=ROWS)
    (tmp_path / "11/stat").write_text((tmp_path / "11/stat").read_text().replace(" S ", " Z "))
    assert identities() == [("acme", Role.CORE), ("mine", Role.WORKER)]


def test_the_configs_titles_reach_the_processes_also_when_it_is_loaded_anew(tmp_path: Path) -> None:
    write_proc(tmp_path, [{"pid": 10, "start": 1, "argv": ["acme::Engines"]}])
    off = "collectors: {nvml: false, systemd: false, shm: false, engine: false}\nhost: {pid_namespace: trust}\n"
    core = 'processes: {titles: [{pattern: "acme::Eng*", engine: acme, role: core}]}\n'
    exporter = Exporter(parse(off + core, name="a"), Paths(procfs=tmp_path), clock=SystemClock())

    def identities() -> tuple[str, Role]:
        processes = exporter.observe(time.monotonic() + 10).snapshot.processes
        assert isinstance(processes, Ok)
        return processes.value.by_pid[10].engine, processes.value.by_pid[10].role

    try:
        assert identities() == ("acme", Role.CORE)
        exporter.configure(parse(off + core.replace("core", "worker"), name="a"))
        assert identities() == ("acme", Role.WORKER)
        exporter.configure(parse(off, name="a"))
        assert identities() == ("", Role.OTHER)
    finally:
        exporter.close()
