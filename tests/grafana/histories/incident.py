"""The incident: a restart loop behind memory that the run before left, on one host, over 6 hours.

Second of the history, and what is true from then on, on gpu-1.example.com:10061 of tokyo, 8 x H20 of 102.6 GB:

        0  vllm@glm.service (port 8000) serves on all 8 GPUs, started 3 days ago, and holds 90 GB of each; a start needs
           94.4 GB of each. 1500 tokens/s generated, 6000 prompt tokens/s, 24 requests running, 2 waiting.
           embed.service (port 8001) serves until the end, with 5 GB of GPU 7, and needs 5.1 GB: 900 prompt tokens/s.
    10800  A worker of glm crashes: XID 31 of GPU 3, the main process exits with 1. Its core and 8 workers stay in the
           unit's cgroup (KillMode=process), with 90 GB of each GPU: leftover. systemd waits 30 s for the restart.
    10830  Restart 1 of 6, verdict resident; each exits with 1 after 80 s, and the next comes 30 s later: restarts at
           10830, 10940, 11050, 11160, 11270, 11380; ends at 10910, 11020, 11130, 11240, 11350, 11460.
           Each of the 7 ends leaves 2 python_shm, 3 semaphores (unheld, and 60 s later stale), 1 orphaned tracker.
    11020  The end of restart 2 leaves an orphaned worker with 2 GB of GPU 0, that of restart 5 (11350) one of GPU 1.
    11400  Somebody kills the leftover worker of GPU 6; its 90 GB stay in use, held by nobody.
    11475  systemctl stop, while systemd waits for restart 7. 6 automatic starts, 7 failures.
    13200  llmhost clean --apply: no leftover, no orphan, no stale file, no orphaned tracker. GPU 6 is still full.
    13700  The guard's drop-in: guarded, start limit over 2 hours, so that systemd would give up.
    13800  systemctl start: the guard waits, 41 s, for
    13841  GPU 6, whose 90 GB come back. The start finds all clean. The engine loads for 8 minutes.
    14321  It serves again, seen at 14340, 540 s after the start, until the end at 21600.
"""

from tests.grafana.histories.hosts import H20, Gpus, Shm, exporter, guard, shared_memory, trackers
from tests.grafana.histories.series import DAY, HOUR, At, History, Rises, Steps, count, total
from tests.grafana.histories.units import HAS_MAIN, End, Start, Traffic, Unit

INSTANCE = "gpu-1.example.com:10061"
GLM, EMBED = "vllm@glm.service", "embed.service"
ALL = range(8)
NEED = 94_415_167_160.0  # 0.92 of an H20
CRASH, STOP, CLEAN, GUARDED, START, FREE, READY = 10800, 11475, 13200, 13700, 13800, 13841, 14321
KILLED = 11400  # the leftover of GPU 6
RESTARTS = tuple(range(10830, 11381, 110))
ENDS = (CRASH, *(start + 80 for start in RESTARTS))
ORPHANS = {0: 11020, 1: 11350}  # GPU -> since when


def incident() -> History:
    history = History("incident", 6 * HOUR)
    host = history.host(INSTANCE)
    exporter(host)
    busy: Steps = [(0, 0.9), (CRASH, 0), (READY, 0.9)]
    gpus = Gpus(host, "NVIDIA H20", H20, 8, utilization=busy, power=[(0, 410), (CRASH, 95), (READY, 410)])
    gpus.holds(ALL, [(0, 90e9), (CRASH, None), (READY, 90e9)], kind="current", unit=GLM)
    for gpu in ALL:
        gpus.holds([gpu], [(CRASH, 90e9), (KILLED if gpu == 6 else CLEAN, None)], kind="leftover", unit=GLM)
    for gpu, since in ORPHANS.items():
        gpus.holds([gpu], [(since, 2e9), (CLEAN, None)], kind="orphan")
    gpus.holds_unattributed([6], [(0, 0), (KILLED, 90e9), (FREE, 0)])
    gpus.holds([7], [(0, 5e9)], kind="current", unit=EMBED)
    gpus.write()
    host.set("llmhost_gpu_xid_errors_total", [(CRASH, 1)], **gpus.labels(3), xid="31")
    host.set("llmhost_gpu_last_xid_timestamp_seconds", [(CRASH, At(CRASH))], **gpus.labels(3), xid="31")

    glm = _glm(gpus)
    glm.write()
    guard(host, GLM, [(FREE, 41, "free")])
    Unit(
        gpus=gpus,
        name=EMBED,
        needs={7: 5_131_259_084},
        does=[(-3 * DAY, "serves")],
        starts=[Start(-3 * DAY, "manual", "clean")],
        port=8001,
        traffic=Traffic("bge-m3", generation=0, prompt=900, steps=15, running=6, waiting=0, kv_cache=0),
        ready_seconds=[(0, 42)],
    ).write()

    host.set("llmhost_orphan_processes", [(0, 0), (ORPHANS[0], None), (CLEAN, 0)], engine="none", role="none")
    orphans: Steps = [(ORPHANS[0], 1), (ORPHANS[1], 2), (CLEAN, None)]
    host.set("llmhost_orphan_processes", orphans, engine="vllm", role="worker")
    host.set("llmhost_orphan_oldest_seconds", [(ORPHANS[0], Rises(1, start=0)), (CLEAN, None)])
    orphaned: Steps = [*count(ENDS), (CLEAN, 0)]
    trackers(host, {"attached": total(glm.where(HAS_MAIN, 1, 0), [(0, 1)]), "orphaned": orphaned})
    shared_memory(host, {"python_shm": _files(11, 1, 2, 40_960, 33_554_432), "semaphore": _files(25, 1, 3, 4096, 32)})
    _alerts(history, host.labels)
    return history


def _glm(gpus: Gpus) -> Unit:
    leftovers: Steps = [(0, 0), (CRASH, 9), (KILLED, 8), (CLEAN, 0)]
    turns = [turn for start in RESTARTS for turn in ((start, "loads"), (start + 80, "waits to restart"))]
    return Unit(
        gpus=gpus,
        name=GLM,
        needs=dict.fromkeys(ALL, NEED),
        does=[
            (-3 * DAY, "serves"),
            (CRASH, "waits to restart"),
            *turns,
            (STOP, "rests"),
            (START, "waits for memory"),
            (FREE, "loads"),
            (READY, "serves"),
        ],
        starts=[
            Start(-3 * DAY, "manual", "clean"),
            *(Start(start, "auto", "resident") for start in RESTARTS),
            Start(START, "manual", "clean", judged=FREE),
        ],
        ends=[End(end, "exit-code", 1) for end in ENDS],
        traffic=Traffic("glm-744b"),
        ready_seconds=[(0, 498), (CRASH, None), (READY, 540)],
        room=[(0, 1), (CRASH, 0), (FREE, 1)],
        leftovers=leftovers,
        in_the_way={
            **{(gpu, "leftover"): [(RESTARTS[0], 90e9), (FREE, None)] for gpu in ALL},
            (0, "orphan"): [(RESTARTS[2], 2e9), (FREE, None)],
            (1, "orphan"): [(RESTARTS[5], 2e9), (FREE, None)],
            (7, "current"): [(0, 5e9)],  # embed's, in nobody's way
        },
        # The workers leave 12.6 GB free; on GPU 7 embed has another 5.
        short={gpu: [(RESTARTS[0], NEED - (NEED / 0.92 - 90e9 - 5e9 * (gpu == 7))), (FREE, 0)] for gpu in ALL},
        restarts_short=[(RESTARTS[0] + 80, 1)],
        guarded=[(0, "false"), (GUARDED, "true")],
        kill_mode="process",
        gives_up=[(0, 0), (GUARDED, 1)],
    )


def _files(live: int, neighbours: int, each: int, allocated: float, apparent: float) -> Shm:
    """Give `each` files for each end; the leftovers have their own open until they are cleaned away."""
    stale = [(end + 60, float(each * number)) for number, end in enumerate(ENDS, 1)]
    unheld = [step for end in ENDS for step in ((end, float(each)), (end + 60, 0.0))]
    states: dict[str, Steps] = {
        "live": [(0, live), (CLEAN, neighbours), (READY, live)],
        "unheld": [(0, 0), *unheld],
        "stale": [(0, 0), *stale, (CLEAN, 0)],
    }
    return Shm(states, allocated, apparent)


def _alerts(history: History, host: dict[str, str]) -> None:
    """Set what fires, as alerts/llmhost.rules.yml has it, evaluated at each scrape.

    A scrape shows a restart's count up to 30 s late: the first at 10830, the second at 10950. `wanted` is 0 from 11490
    on. What is kept firing for 10 minutes after that fires last at 12060.
    """
    glm = host | {"unit": GLM, "manager": "system"}
    history.fires("LlmhostRestartLoop", "critical", glm | {"memory": "short"}, (10950, 12060))
    history.fires("LlmhostRestartedWhileMemoryResident", "critical", glm, (10830, 12180))
    # From the third restart, seen at 11070, until systemd would give up, seen at 13710.
    history.fires("LlmhostEndlessLoop", "warning", glm, (11070, 13680))
    # For 5 minutes.
    history.fires("LlmhostMemoryHeldByDownUnit", "warning", glm, (CRASH, 13170), wait=300)
    history.fires("LlmhostMemoryHeldByOrphan", "warning", host, (11040, 13170), wait=300)
    history.fires("LlmhostOrphanEngines", "warning", host | {"engine": "vllm"}, (11040, 13170), wait=300)
    history.fires("LlmhostMemoryHeldByNobody", "warning", host, (KILLED, 13830), wait=300)
    # For 30 minutes.
    history.fires("LlmhostStaleSegments", "info", host, (10860, 13170), wait=1800)
    history.fires("LlmhostOrphanTrackers", "info", host | {"state": "orphaned"}, (CRASH, 13170), wait=1800)
    # Until an hour after the XID.
    gpu = {"gpu": "3", "uuid": "GPU-fa4e0003-0000-4000-8000-000000000003", "xid": "31"}
    history.fires("LlmhostXidApplication", "info", host | gpu, (CRASH, 14370))
    history.fires("LlmhostWatchdog", "none", {}, (0, history.seconds))
