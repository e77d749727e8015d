"""A real vLLM on the CPU, in a unit of a booted systemd, and the exporter beside it. The network is ours.

The model is made on the spot: a Llama of 2 layers with 64 hidden units, dummy weights, and a tokenizer with one token
per word. What it says is noise; how many tokens it says is what was asked for.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.fakes.booted import Booted
from tests.fakes.needs import missing
from tests.fakes.prometheus import free_port

ROOT = Path(__file__).parents[2]
VLLM = ROOT / ".venv-vllm/bin/vllm"
LLMHOST = Path(sys.executable).with_name("llmhost")
UNIT = "vllm-tiny.service"
EXPORTER = "exporter-of-test.service"
GRACE_SECONDS = 5
_LOADING_SECONDS = 400.0  # it takes 50 on two idle cores
_POLL_SECONDS = 0.5

_MODEL = """
import json, sys
from pathlib import Path
from tokenizers import Tokenizer, models, pre_tokenizers
model = Path(sys.argv[1])
model.mkdir()
words = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(253))]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save(str(model / "tokenizer.json"))
special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
(model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
(model / "config.json").write_text(json.dumps({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": len(words),
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2,
}))
"""

# KillMode=process, as people have it who do not want systemd to touch the workers: then nobody ends them.
# nobind: vLLM binds each worker to a NUMA node of its own and refuses to start where there are fewer.
_UNIT = """\
[Service]
ExecStart={vllm} serve /opt/tiny --served-model-name tiny --host 127.0.0.1 --port {port} --load-format dummy \
--tensor-parallel-size 2 --max-model-len 512 --enforce-eager
KillMode=process
Environment=HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_CPU_KVCACHE_SPACE=1
Environment=VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
StandardOutput=append:/opt/vllm.log
StandardError=inherit
"""

_EXPORTER = """\
[Service]
Type=notify
ExecStart={llmhost} serve --web.listen-address 127.0.0.1:{port} --config /opt/llmhost.yml
"""

_CONFIG = f"""\
host: {{pid_namespace: trust}}
policy: {{orphan_grace: {GRACE_SECONDS}s, segment_grace: {GRACE_SECONDS}s}}
"""


class Page:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def by(self, name: str, label: str, **wanted: str) -> dict[str, float]:
        """Sum up samples other than 0 of this name and these labels, by the value of another label."""
        found = [
            sample
            for sample in self._samples
            if sample.name == name and wanted.items() <= sample.labels.items() and sample.value
        ]
        sums: dict[str, float] = {}
        for entry in found:
            sums[entry.labels[label]] = sums.get(entry.labels[label], 0) + entry.value
        return sums

    def value(self, name: str, **wanted: str) -> float | None:
        """Give the value of the only sample of this name and these labels; None if there is none."""
        found = [
            sample.value for sample in self._samples if sample.name == name and wanted.items() <= sample.labels.items()
        ]
        assert len(found) < 2, found
        return found[0] if found else None


@dataclass
class Host:
    """A host on which vLLM runs in UNIT, and the exporter reads it."""

    booted: Booted
    port: int
    exporter_port: int

    def page(self) -> Page:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.exporter_port}/metrics", timeout=20) as answer:
            return Page(answer.read().decode())

    def page_when(self, true: Callable[[Page], bool], seconds: float) -> Page:
        """Scrape until the page is so. The page is all the news there is, so it is asked again and again."""
        until = time.monotonic() + seconds
        while not true(page := self.page()):
            assert time.monotonic() < until, page.text
            time.sleep(_POLL_SECONDS)
        return page

    def segments(self) -> list[str]:
        return self.booted.run(["ls", "/dev/shm"]).stdout.split()

    def complete(self, prompt: str, tokens: int) -> None:
        """Have it say this many tokens, whatever they are."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - as above
            assert json.load(answer)["usage"]["completion_tokens"] == tokens

    def complete_all(self, prompts: list[tuple[str, int]]) -> None:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda prompt: self.complete(*prompt), prompts))

    def kill(self, whom: str) -> None:
        self.booted.systemctl("kill", "--signal=KILL", f"--kill-who={whom}", UNIT)

    @contextmanager
    def serving(self) -> Iterator[list[Page]]:
        """Start vLLM, wait until it answers, give the pages of that time. At last remove all that is left of it."""
        self.booted.systemctl("start", UNIT)
        try:
            yield self._load()
        finally:
            self.booted.run(["systemctl", "kill", "--signal=KILL", "--kill-who=all", UNIT], check=False)
            self._wait_until_all_have_ended()
            self.booted.run(["find", "/dev/shm", "-type", "f", "-delete"])
            self.booted.systemctl("reset-failed", UNIT, check=False)

    def _load(self) -> list[Page]:
        until = time.monotonic() + _LOADING_SECONDS
        pages: list[Page] = []
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return pages
            except (urllib.error.URLError, ConnectionError):
                state = self.booted.show(UNIT, "ActiveState")["ActiveState"]
                assert state == "active", self._log()
                assert time.monotonic() < until, self._log()
                pages.append(self.page())
                time.sleep(_POLL_SECONDS)

    def _wait_until_all_have_ended(self) -> None:
        until = time.monotonic() + 120
        events = f"/sys/fs/cgroup/system.slice/{UNIT}/cgroup.events"
        while "populated 1" in self.booted.run(["cat", events], check=False).stdout:
            assert time.monotonic() < until
            time.sleep(_POLL_SECONDS)

    def _log(self) -> str:
        return self.booted.run(["tail", "-n", "40", "/opt/vllm.log"], check=False).stdout


@contextmanager
def vllm_host(booted: Booted) -> Iterator[Host]:
    if not (VLLM.parent.parent / "ready").exists():
        missing("a real vLLM: make test-vllm")
    booted.run([str(VLLM.with_name("python")), "-c", _MODEL, "/opt/tiny"])
    host = Host(booted, free_port(), free_port())
    booted.write("/opt/llmhost.yml", _CONFIG)
    booted.write_unit(UNIT, _UNIT.format(vllm=VLLM, port=host.port))
    booted.write_unit(EXPORTER, _EXPORTER.format(llmhost=LLMHOST, port=host.exporter_port))
    booted.systemctl("daemon-reload")
    booted.systemctl("start", EXPORTER)
    try:
        yield host
    finally:
        booted.systemctl("stop", EXPORTER)
