"""`llmhost doctor` as text: what is to be typed or written is whole, and lines fit otherwise."""

from llmhost.decide.doctor.finding import Finding, Severity
from llmhost.views.doctor import doctor_text

FINDING = Finding(
    check="guard-blinded",
    severity=Severity.WARNING,
    unit=r"vllm@Qwen\x2d8B.service",
    what="its guard sees nothing",
    why="the sandbox hides it",
    drop_in=("[Service]", "ExecStartPre=+/opt/py -I -m llmhost guard --gpus 0,1 --settle 2s"),
)


def test_a_long_setting_is_continued_as_systemd_reads_it_and_a_unit_is_quoted_for_a_shell() -> None:
    assert doctor_text([FINDING], (), width=40).splitlines() == [
        r"warning: vllm@Qwen\x2d8B.service: its",
        "  guard sees nothing [guard-blinded]",
        "  the sandbox hides it.",
        "  systemctl edit",
        r"    'vllm@Qwen\x2d8B.service', and add:",
        "    [Service]",
        "    ExecStartPre=+/opt/py -I -m \\",
        "        llmhost guard --gpus 0,1 \\",
        "        --settle 2s",
        "",
        "1 warning",
    ]
