"""Series of GPUs, holders, units, collectors and the exporter; each function is a section of the page. Pure."""

from collections.abc import Mapping
from dataclasses import fields

from llmhost.derive.attribution import grouped
from llmhost.derive.facts import UnitFacts
from llmhost.metrics import catalog
from llmhost.metrics.page import Page
from llmhost.metrics.shown_units import shown_units
from llmhost.metrics.view import PageView
from llmhost.model.gpu import Gpu, NvmlReport
from llmhost.model.ids import UnitId
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed, Ok, mapped, value_or_none
from llmhost.model.unit import ACTIVE_STATES


def gpu_series(view: PageView, page: Page) -> None:
    report = view.host.snapshot.nvml
    if isinstance(report, Failed) and report.cause is Cause.DRIVER_MISMATCH:
        page.add(catalog.DRIVER_MISMATCH, 1)
    if isinstance(report, Failed) and report.stuck is not None:
        page.add(catalog.NVML_STUCK_CALL, report.stuck.seconds, call=report.stuck.call, gpu=report.stuck.subject)
    if not isinstance(report, Ok):
        return
    for gpu in report.value.gpus:
        _device(gpu, report.value, page)
    page.add(catalog.GPUS, report.value.listed)
    expected = view.host.gpus_expected
    page.add(catalog.GPUS_EXPECTED, report.value.listed_most if expected is None else expected)
    page.add(catalog.DRIVER_MISMATCH, report.value.driver_mismatch)


def _device(gpu: Gpu, report: NvmlReport, page: Page) -> None:
    memory = value_or_none(gpu.memory)
    page.add(
        catalog.GPU_INFO,
        1,
        gpu=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        pci_bus_id=gpu.pci_bus_id,
        driver_version=report.driver_version,
        parent_uuid=gpu.parent_uuid or "",
        unified_memory="true" if gpu.unified_memory else "false",
        memory_api="" if memory is None else memory.api,
    )
    page.add(catalog.GPU_UP, gpu.up, gpu=gpu.index, uuid=gpu.uuid)
    if gpu.fault is not None:
        page.add(catalog.GPU_FAULT, 1, gpu=gpu.index, uuid=gpu.uuid, cause=gpu.fault)
    if memory is not None:
        for family, value in (
            (catalog.GPU_MEMORY_TOTAL, memory.total_bytes),
            (catalog.GPU_MEMORY_USED, memory.used_bytes),
            (catalog.GPU_MEMORY_FREE, memory.free_bytes),
            (catalog.GPU_MEMORY_RESERVED, memory.reserved_bytes),
        ):
            page.add(family, value, gpu=gpu.index, uuid=gpu.uuid)
    for family, held in (
        (catalog.GPU_UTILIZATION, gpu.utilization_ratio),
        (catalog.GPU_TEMPERATURE, gpu.temperature_celsius),
        (catalog.GPU_POWER, gpu.power_watts),
        (catalog.GPU_FABRIC_READY, gpu.fabric_ready),
    ):
        page.add(family, held, gpu=gpu.index, uuid=gpu.uuid)
    for xid in gpu.xids:
        page.add(catalog.GPU_XID_ERRORS, xid.count, gpu=gpu.index, uuid=gpu.uuid, xid=str(xid.number))
        page.add(catalog.GPU_LAST_XID, xid.last_at, gpu=gpu.index, uuid=gpu.uuid, xid=str(xid.number))


def holder_series(view: PageView, page: Page) -> None:
    report, attribution = view.host.snapshot.nvml, view.host.facts.attribution
    if not isinstance(report, Ok) or not isinstance(attribution, Ok):
        return
    for gpu in report.value.gpus:
        held = attribution.value.get(gpu.uuid)
        if not isinstance(held, Ok):
            continue
        for group in sorted(
            grouped(held.value.holders), key=lambda group: (*_unit_labels(group.unit), str(group.kind))
        ):
            unit, manager = _unit_labels(group.unit)
            labels = {"gpu": gpu.index, "uuid": gpu.uuid, "unit": unit, "manager": manager, "kind": str(group.kind)}
            page.add(catalog.GPU_HOLDER_MEMORY, group.used_bytes, **labels)
            page.add(catalog.GPU_HOLDER_PROCESSES, len(group.pids), **labels)
        page.add(catalog.GPU_UNATTRIBUTED, value_or_none(held.value.unattributed_bytes), gpu=gpu.index, uuid=gpu.uuid)


def _unit_labels(unit: UnitId | None) -> tuple[str, str]:
    return ("", "") if unit is None else (unit.name, unit.manager)


def unit_series(view: PageView, page: Page) -> None:
    report = view.host.snapshot.nvml
    indexes = {gpu.uuid: gpu.index for gpu in report.value.gpus} if isinstance(report, Ok) else {}
    for fact in shown_units(view, page):
        labels = {"unit": fact.unit.id.name, "manager": fact.unit.id.manager}
        _state(fact, labels, page)
        _settings(fact, labels, page)
        processes = value_or_none(fact.processes)
        if processes is not None:
            for role in Role:
                page.add(catalog.UNIT_PROCESSES, processes.get(role, 0), **labels, role=role)
        page.add(catalog.UNIT_LEFTOVER_PROCESSES, value_or_none(mapped(fact.leftovers, len)), **labels)
        for uuid, wanted_bytes in (value_or_none(fact.needed) or {}).items():
            page.add(catalog.UNIT_NEEDED, wanted_bytes, **labels, gpu=indexes[uuid], uuid=uuid)
        page.add(catalog.UNIT_STARTABLE, value_or_none(fact.startable), **labels)


def _state(facts: UnitFacts, labels: Mapping[str, str], page: Page) -> None:
    unit = facts.unit
    settings = unit.settings
    page.add(
        catalog.UNIT_INFO,
        1,
        **labels,
        load_state=unit.load_state,
        unit_file_state=unit.unit_file_state,
        service_type=settings.service_type if settings is not None else "",
        engine=facts.engine,
        restart=settings.restart if settings is not None else "",
        kill_mode=settings.kill_mode if settings is not None else "",
        guarded="true" if facts.guarded else "false",
    )
    for state in ACTIVE_STATES:
        page.add(catalog.UNIT_ACTIVE_STATE, unit.active_state == state, **labels, state=state)
    page.add(catalog.UNIT_SUB_STATE, 1, **labels, state=unit.sub_state)
    if unit.result:
        page.add(catalog.UNIT_RESULT, 1, **labels, result=unit.result)
    page.add(catalog.UNIT_WANTED, value_or_none(facts.should_run), **labels)
    page.add(catalog.UNIT_NRESTARTS, unit.nrestarts, **labels)
    page.add(catalog.UNIT_STATE_CHANGE, unit.state_change_at, **labels)
    page.add(catalog.UNIT_EXEC_MAIN_STATUS, unit.exec_main_status, **labels)


def _settings(facts: UnitFacts, labels: Mapping[str, str], page: Page) -> None:
    settings = facts.unit.settings
    if settings is None:
        return
    for family, value in (
        (catalog.UNIT_RESTART_DELAY, settings.restart_delay_seconds),
        (catalog.UNIT_START_TIMEOUT, settings.start_timeout_seconds),
        (catalog.UNIT_STOP_TIMEOUT, settings.stop_timeout_seconds),
        (catalog.UNIT_START_LIMIT_BURST, settings.start_limit_burst),
        (catalog.UNIT_START_LIMIT_INTERVAL, settings.start_limit_interval_seconds),
    ):
        page.add(family, value, **labels)


def collector_series(view: PageView, page: Page) -> None:
    for health in view.health:
        page.add(catalog.COLLECTOR_SUCCESS, health.fault is None, collector=health.collector)
        if health.fault is not None:
            page.add(catalog.COLLECTOR_FAULT, 1, collector=health.collector, cause=health.fault.cause)
        page.add(catalog.COLLECTOR_DURATION, health.duration_seconds, collector=health.collector)
        page.add(catalog.COLLECTOR_LAST_SUCCESS, health.last_success_at, collector=health.collector)
        for cause, count in sorted(health.failures.items()):
            page.add(catalog.COLLECTOR_FAILURES, count, collector=health.collector, cause=cause)


def own_series(view: PageView, page: Page) -> None:
    own, snapshot = view.own, view.host.snapshot
    page.add(catalog.CONFIG_RELOAD_SUCCESS, own.config_reload_success)
    page.add(catalog.CONFIG_LAST_SUCCESS, own.config_loaded_at)
    unreadable = [
        *([snapshot.processes.value.unreadable] if isinstance(snapshot.processes, Ok) else []),
        *([snapshot.shm.value.uninspected] if isinstance(snapshot.shm, Ok) else []),
    ]
    # mostly the same ones: a process's command line may be readable where its maps are not, never the reverse
    page.add(catalog.UNREADABLE_PROCESSES, max(unreadable, default=None))
    if isinstance(snapshot.units, Ok):
        for reason, count in snapshot.units.value.resyncs:
            page.add(catalog.RESYNCS, count, reason=reason)
    for name, count in sorted(own.dropped.items()):
        page.add(catalog.DROPPED_SERIES, count, family=name)
    for threshold in fields(view.host.policy):
        page.add(catalog.FAMILIES[f"llmhost_policy_{threshold.name}"], getattr(view.host.policy, threshold.name))
    page.add(catalog.BUILD_INFO, 1, version=own.version, revision=own.revision, python_version=own.python_version)
