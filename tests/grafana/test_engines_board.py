"""Queries of the engines board, answered by promtool from a few series; the answers are worked out by hand."""

from pathlib import Path

from tests.grafana.boards import CANNOT_TELL, Series, answers, column, panel, query, stats

BOARD = "llmhost-engines"
HOST = 'cluster="c",job="j",instance="a"'
# Texts of the states, as the reader sees them.
MAPPED = panel(BOARD, "Whether engines answer")["fieldConfig"]["defaults"]["mappings"]
CODES = {shown["text"]: float(code) for mapping in MAPPED for code, shown in mapping["options"].items()}
BANNER = [stat["title"] for stat in stats(BOARD)]


def unit(name: str) -> str:
    return f'{HOST},unit="{name}.service",manager="system"'


def server(name: str, port: int = 8000) -> str:
    return f'{unit(name)},engine="vllm",endpoint="http://127.0.0.1:{port}"'


def of_unit(name: str, state: str, *, wanted: int = 1) -> Series:
    return {
        f"llmhost_unit_ready_budget_seconds{{{unit(name)}}}": 1800,
        f'llmhost_unit_active_state{{{unit(name)},state="{state}"}}': 1,
        f'llmhost_unit_active_state{{{unit(name)},state="deactivating"}}': 0,
        f"llmhost_unit_wanted{{{unit(name)}}}": wanted,
    }


def silent(labels: str, cause: str) -> Series:
    return {f"llmhost_engine_up{{{labels}}}": 0, f'llmhost_engine_fault{{{labels},cause="{cause}"}}': 1}


def serving(labels: str, *, running: int, generated: str, prompt: str = "0x90", rank: int = 0) -> Series:
    model = f'{labels},model="m",engine_index="{rank}"'
    return {
        f"llmhost_engine_up{{{labels}}}": 1,
        f"llmhost_engine_requests_running{{{model}}}": running,
        f"llmhost_engine_requests_waiting{{{model}}}": 0,
        f"llmhost_engine_generation_tokens_total{{{model}}}": generated,
        f"llmhost_engine_prompt_tokens_total{{{model}}}": prompt,
        f"llmhost_engine_kv_cache_usage_ratio{{{model}}}": 0.5 + rank / 10,
    }


# Of each kind one, and one with two data-parallel ranks.
ALL: Series = {
    f"up{{{HOST}}}": 1,
    f'llmhost_build_info{{{HOST},version="1"}}': 1,
    **of_unit("serves", "active"),
    **serving(server("serves"), running=2, generated="0+600x90", rank=0),
    **serving(server("serves"), running=3, generated="0+60x90", rank=1),
    f"llmhost_engine_ready_seconds{{{server('serves')}}}": 498,
    **of_unit("hangs", "active"),
    **serving(server("hangs"), running=1, generated="7x90"),
    **of_unit("reads", "active"),  # generates nothing, as servers of embeddings do
    **serving(server("reads"), running=1, generated="0x90", prompt="0+60x90"),
    **of_unit("prefills", "active"),  # a long prompt, that counts once it has been read
    **serving(server("prefills"), running=1, generated="7x90"),
    f'llmhost_engine_steps_total{{{server("prefills")},model="m",engine_index="0"}}': "0+9x90",
    **of_unit("idles", "active"),
    **serving(server("idles"), running=0, generated="7x90"),
    **of_unit("sleeps", "active"),
    **serving(server("sleeps"), running=0, generated="7x90"),
    f'llmhost_engine_sleeping{{{server("sleeps")},model="m",engine_index="0"}}': 1,
    **of_unit("loads", "activating"),
    **silent(server("loads"), "starting"),
    **of_unit("deaf", "active"),
    **silent(server("deaf"), "timeout"),
    **silent(server("deaf", 8001), "unknown"),
    **of_unit("failed", "failed"),
    **of_unit("stopped", "inactive", wanted=0),
    **of_unit("unseen", "active"),  # its engine has no metrics
}


def test_the_banner_counts_servers_and_units(tmp_path: Path) -> None:
    expected = {
        "Is it seen?": 2,
        "Servers up": 6,
        "… silent": 2,
        "… loading": 1,
        "Units down": 1,
        "Generated": 11,  # 600 and 60 a minute
        "Requests": 8,
        "KV cache": 0.6,
    }
    assert list(expected) == BANNER
    checks = {query(BOARD, title): {"{}": float(value)} for title, value in expected.items()}
    answers(tmp_path, ALL, {**checks, query(BOARD, "Requests", "B"): {"{}": 0}}, at="10m")


def test_the_banner_says_nothing_of_engines_where_nothing_is_known(tmp_path: Path) -> None:
    answers(tmp_path, {f"node_uname_info{{{HOST}}}": 1}, {query(BOARD, title): {} for title in BANNER})


def test_each_unit_shows_as_the_worst_of_its_servers_also_while_it_has_none(tmp_path: Path) -> None:
    states = {
        "serves": "ok",
        "hangs": "hangs",
        "reads": "ok",
        "prefills": "ok",
        "idles": "ok",
        "sleeps": "asleep",
        "loads": "starting",
        "deaf": "timeout",
        "failed": "unit is down",
        "stopped": "unit was stopped",
    }
    shown = {f"{{{unit(name)}}}": CODES[text] for name, text in states.items()}
    answers(tmp_path, ALL, {query(BOARD, "Whether engines answer"): shown}, at="10m")


def test_a_unit_of_several_servers_is_not_well_while_one_of_them_is_not(tmp_path: Path) -> None:
    """A cause that is none of an engine's has no code; a server that hung and went silent hangs no more."""
    asleep = f'llmhost_engine_sleeping{{{server("naps")},model="m",engine_index="0"}}'
    series: Series = {
        **serving(server("half"), running=0, generated="7x90"),
        **silent(server("half", 8001), "unknown"),
        **serving(server("naps"), running=0, generated="7x90"),
        asleep: 1,
        **silent(server("naps", 8001), "refused"),
        **serving(server("hung"), running=1, generated="7x90"),
        **silent(server("hung"), "timeout"),  # its requests were told of within the last five minutes
        **serving(server("hangs"), running=1, generated="7x90"),
        **silent(server("hangs", 8001), "starting"),
    }
    states = {"half": "fails", "naps": "refused", "hung": "timeout", "hangs": "hangs"}
    shown = {f"{{{unit(name)}}}": CODES[text] for name, text in states.items()}
    answers(tmp_path, series, {query(BOARD, "Whether engines answer"): shown}, at="10m")


def test_the_table_has_a_row_for_each_model_each_silent_server_and_each_unit_that_is_down(tmp_path: Path) -> None:
    of_models = {
        name: f'{{{server(name)},model="m"}}' for name in ("serves", "hangs", "reads", "prefills", "idles", "sleeps")
    }
    rest = {
        "loads": f"{{{server('loads')}}}",
        "deaf": f"{{{server('deaf')}}}",
        "deaf, too": f"{{{server('deaf', 8001)}}}",
        "failed": f"{{{unit('failed')}}}",
        "stopped": f"{{{unit('stopped')}}}",
    }
    states = (
        "ok",
        "hangs",
        "ok",
        "ok",
        "ok",
        "asleep",
        "starting",
        "timeout",
        "fails",
        "unit is down",
        "unit was stopped",
    )
    unknown = dict.fromkeys(rest.values(), float(CANNOT_TELL))
    rows = (*of_models.values(), *rest.values())

    def of_each(*values: float) -> dict[str, float]:
        return {**dict(zip(of_models.values(), values, strict=True)), **unknown}

    answers(
        tmp_path,
        ALL,
        {
            column(BOARD, "Engines", "state"): {row: CODES[state] for row, state in zip(rows, states, strict=True)},
            column(BOARD, "Engines", "generated"): of_each(11, 0, 0, 0, 0, 0),
            column(BOARD, "Engines", "running"): of_each(5, 1, 1, 1, 0, 0),
            column(BOARD, "Engines", "waiting"): of_each(0, 0, 0, 0, 0, 0),
            column(BOARD, "Engines", "KV cache"): of_each(0.6, 0.5, 0.5, 0.5, 0.5, 0.5),
            column(BOARD, "Engines", "ready in"): of_each(498, *[CANNOT_TELL] * 5),
        },
        at="10m",
    )


def test_ranks_are_shown_of_servers_with_several_alone(tmp_path: Path) -> None:
    ranks = [f'{{{server("serves")},model="m",engine_index="{rank}"}}' for rank in (0, 1)]
    expected = {
        "Tokens by data-parallel rank": (10, 1),
        "Requests by data-parallel rank": (2, 3),
        "KV cache by data-parallel rank": (0.5, 0.6),
    }
    checks = {
        query(BOARD, title): dict(zip(ranks, map(float, values), strict=True)) for title, values in expected.items()
    }
    answers(tmp_path, ALL, checks, at="10m")


def test_a_load_that_goes_on_is_timed_from_its_start(tmp_path: Path) -> None:
    began = {f"llmhost_unit_last_start_timestamp_seconds{{{unit(name)}}}": 120.0 for name in ("loads", "serves")}
    title = "From start to first answer"
    answers(
        tmp_path,
        {**ALL, **began},
        {
            query(BOARD, title): {f"{{{unit('serves')}}}": 498},
            query(BOARD, title, "B"): {f"{{{unit('loads')}}}": 600 - 120},
        },
        at="10m",
    )


def test_tokens_are_shared_among_the_requests_that_run(tmp_path: Path) -> None:
    units = ("serves", "hangs", "reads", "prefills")
    shown = dict(zip((f'{{{server(name)},model="m"}}' for name in units), (11 / 5, 0.0, 0.0, 0.0), strict=True))
    answers(tmp_path, ALL, {query(BOARD, "Tokens generated per running request"): shown}, at="10m")
