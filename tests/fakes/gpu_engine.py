"""A stand-in for vLLM as a service: run as `python …/vllm serve MODEL --port PORT`, a copy of this file.

It asks the driver what is free and refuses to start as vLLM does, loads for ENGINE_LOADS seconds, then answers
/metrics. It tells the fake driver what it holds, and for how many seconds that outlives it, ENGINE_LINGERS: see
gpu_host.py. SIGTERM ends it with 0, and then nothing outlives it.

Files in ENGINE_DIRECTORY tell it what becomes of it. MODEL.fail ends it with 1, MODEL.leave with 0 (a dead worker can
end vLLM so), and they are gone then. MODEL.broken ends it with 1 each time it has loaded. With MODEL.slow it goes on
loading, with MODEL.hang it has requests and makes no step, with MODEL.deaf it does not answer, with MODEL.closed
it no longer listens.
"""

import fcntl
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pynvml

_POLL_SECONDS = 0.05
_GIB = 1 << 30

model = sys.argv[2]
arguments = dict(zip(sys.argv[3::2], sys.argv[4::2], strict=True))
gpus = [int(index) for index in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
directory = Path(os.environ["ENGINE_DIRECTORY"])
state = Path(os.environ["FAKE_NVML_STATE"])
lingers = float(os.environ["ENGINE_LINGERS"])
steps = 0


def is_requested(what: str) -> bool:
    return (directory / f"{model}.{what}").exists()


def refuse_unless_free() -> int:
    """Give what it will hold on each GPU."""
    share = float(arguments["--gpu-memory-utilization"])
    wanted = 0
    pynvml.nvmlInit()
    for gpu in gpus:
        memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(gpu))
        wanted = int(share * memory.total)
        if memory.free < wanted:
            print(
                f"ValueError: Free memory on device cuda:{gpus.index(gpu)} ({memory.free / _GIB:.2f}/"
                f"{memory.total / _GIB:.2f} GiB) on startup is less than desired GPU memory utilization "
                f"({share}, {wanted / _GIB:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used by "
                "other processes.",
                flush=True,
            )
            sys.exit(1)
    pynvml.nvmlShutdown()
    return wanted - 2 * _GIB


def hold(held_bytes: int, lingers_seconds: float) -> None:
    """Tell the fake driver what this process has, in place of what it said before; 0: nothing."""
    with (state.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = [line for line in state.read_text().splitlines() if f" {os.getpid()} " not in line]
        if held_bytes:
            lines += [f"proc {gpu} {os.getpid()} mem={held_bytes} outlives={lingers_seconds:g}" for gpu in gpus]
        fresh = state.with_suffix(f".{os.getpid()}")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(state)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        while is_requested("deaf"):
            time.sleep(_POLL_SECONDS)
        waiting = 1.0 if is_requested("hang") else 0.0
        at = f'{{model_name="{model}",engine="0"}}'
        page = (
            f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{at} 2.0\n"
            f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{at} {waiting}\n"
            f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{at} 0.4\n"
            f"# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total{at} {steps * 9.0}\n"
            f"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{at} {steps * 2.0}\n"
            f"# TYPE vllm:iteration_tokens_total histogram\n"
            f'vllm:iteration_tokens_total_bucket{{model_name="{model}",engine="0",le="+Inf"}} {steps}.0\n'
            f"vllm:iteration_tokens_total_count{at} {steps}.0\nvllm:iteration_tokens_total_sum{at} {steps * 11.0}\n"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        pass


def end_in_order(*_: object) -> None:
    hold(0, 0)
    os._exit(0)


def serve() -> None:
    global steps  # noqa: PLW0603 - what it has done so far
    held_bytes = refuse_unless_free()
    signal.signal(signal.SIGTERM, end_in_order)
    print(f"Loading weights of {model}", flush=True)
    hold(held_bytes, lingers)
    ready_at = time.monotonic() + float(os.environ["ENGINE_LOADS"])
    while time.monotonic() < ready_at or is_requested("slow"):
        time.sleep(_POLL_SECONDS)
    if is_requested("broken"):
        hold(held_bytes, 0)
        print("RuntimeError: Engine core initialization failed. See root cause above.", flush=True)
        os._exit(1)
    server = ThreadingHTTPServer(("127.0.0.1", int(arguments["--port"])), Answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("Application startup complete.", flush=True)
    listens = True
    while True:
        time.sleep(_POLL_SECONDS)
        steps += not is_requested("hang")
        if listens and is_requested("closed"):
            server.shutdown()
            server.server_close()
            listens = False
        for what, status in (("fail", 1), ("leave", 0)):
            if is_requested(what):
                (directory / f"{model}.{what}").unlink()
                print(f"EngineDeadError: EngineCore encountered an issue ({what}).", flush=True)
                os._exit(status)


if __name__ == "__main__":
    serve()
