"""Finding an engine's command behind wrappers, for ExecStart= lines.

A shell or wrapper that waits for an engine is not an engine's process, so `engines.classify` does not come here; a
service that starts one is an engine's service, so discovery does. Only programs known to run their arguments are seen
through, each by its own option syntax: `less vllm.log`, `journalctl -u vllm` and `grep vllm serve` are no engines.
`systemd-run` is not seen through: what it starts lives in another unit.
"""

import re
import shlex
from collections.abc import Mapping
from posixpath import basename

from llmhost.model.engines import own_command

_DEPTH = 8  # wrappers in wrappers; no honest command line has more
_LONGEST_CODE = 4096  # of a shell
_MOST_WORDS = 512  # that are searched; any user can write a command line, and must not hold us up

# Wrapper → options that take a value as an argument of their own; "*N": N words before the command.
_WRAPPERS: Mapping[str, frozenset[str]] = {
    name: frozenset(options.split())
    for name, options in {
        "catchsegv": "",
        "chpst": "-u -U -b -/ -n -l -L -m -d -o -p -f -c -r -t -e",
        "chronic": "",
        "chrt": "-T -P -D *1",
        "command": "",
        "dumb-init": "-r --rewrite",
        "env": "-u --unset -C --chdir",
        "exec": "-a",
        "flock": "-w --wait --timeout -E --conflict-exit-code *1",
        "gosu": "*1",
        "ionice": "-c --class -n --classdata",
        "nice": "-n --adjustment",
        "nohup": "",
        "numactl": "-i --interleave -w --weighted-interleave -p --preferred -P --preferred-many -m --membind "
        "-N --cpunodebind -C --physcpubind",
        "prlimit": "",
        "runuser": "-u --user -g --group -G --supp-group",
        "setpriv": "--reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits --pdeathsig",
        "setsid": "",
        "stdbuf": "-i --input -o --output -e --error",
        "sudo": "-u --user -g --group -C --close-from -D --chdir -h --host -p --prompt -r --role -t --type -T",
        "taskset": "*1",
        "time": "-f --format -o --output",
        "timeout": "-s --signal -k --kill-after *1",
        "tini": "-p -e",
        "tini-static": "-p -e",
        "unshare": "",
    }.items()
}
_WORDS = re.compile(r"\*(\d)")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SHELL_OPTIONS = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_SHELL_WORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

# Programs with too many options to know: after these words, the engine's command is looked for at every argument.
_RUNNERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "uv": (("run",), ("tool", "run")),
    "uvx": ((),),
    "pipx": (("run",),),
    "poetry": (("run",),),
    "pdm": (("run",),),
    "hatch": (("run",),),
    "pixi": (("run",),),
    "conda": (("run",),),
    "mamba": (("run",),),
    "micromamba": (("run",),),
    "apptainer": (("exec",), ("run",)),
    "singularity": (("exec",), ("run",)),
    "nsys": (("profile",), ("launch",)),
    "docker": (("run",), ("container", "run")),
    "podman": (("run",), ("container", "run")),
    "nerdctl": (("run",), ("container", "run")),
}

# Images whose entry point is an engine; their arguments follow them on the command line.
_IMAGES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:docker://)?(?:[\w.-]+(?::\d+)?/)*(?:{name})(?:[:@][^/]*)?$"), engine)
    for name, engine in (
        (r"vllm/vllm-openai[\w-]*", "vllm"),
        (r"lmsysorg/sglang[\w-]*", "sglang"),
        (r"huggingface/text-generation-inference", "tgi"),
        (r"ggml-org/llama\.cpp|ggerganov/llama\.cpp", "llamacpp"),
        (r"ollama/ollama", "ollama"),
        (r"nvidia/tritonserver", "triton"),
    )
)


def is_engine_command(argv: tuple[str, ...]) -> str:
    """Name the engine that this command line will run, "" when it will run none that we know."""
    return engine_command(argv)[0]


def engine_command(argv: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Find the engine and its own argv; for an image with an engine as entry point, the image and what follows."""
    return _search(argv[:_MOST_WORDS], _DEPTH)


def _search(argv: tuple[str, ...], depth: int, *, in_runner: bool = False) -> tuple[str, tuple[str, ...]]:
    nothing: tuple[str, tuple[str, ...]] = ("", ())
    if not argv or not depth:
        return nothing
    own = own_command(argv)
    if own is not None:
        return own[0], argv
    program = basename(argv[0])
    if program in _WRAPPERS:
        return _search(_after_wrapper(program, argv[1:]), depth - 1, in_runner=in_runner)
    if program in _SHELLS:
        return _in_shell(argv[1:], depth - 1, in_runner=in_runner)
    for words in (
        _RUNNERS.get(program, ()) if not in_runner else ()
    ):  # a runner in a runner would be looked for N² times
        if argv[1 : 1 + len(words)] == words:
            return _anywhere(argv[1 + len(words) :], depth - 1)
    return nothing


def _after_wrapper(program: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments from the wrapped command on."""
    options = _WRAPPERS[program]
    words = sum(int(match[1]) for option in options if (match := _WORDS.match(option)))
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        if argument == "--":
            index += 1
            break
        if program == "env" and argument in ("-S", "--split-string"):
            return _split(" ".join(arguments[index + 1 :]))
        if argument.startswith("-") and argument != "-":
            index += 2 if argument in options else 1
        elif program in ("env", "sudo", "exec") and _ASSIGNMENT.match(argument):
            index += 1
        else:
            break
    rest = arguments[index + words :]
    while program == "env" and rest and _ASSIGNMENT.match(rest[0]):
        rest = rest[1:]
    return rest


def _in_shell(arguments: tuple[str, ...], depth: int, *, in_runner: bool) -> tuple[str, tuple[str, ...]]:
    index = 0
    code = False
    while index < len(arguments) and arguments[index][:1] in ("-", "+") and arguments[index] not in ("-", "--"):
        option = arguments[index]
        code = code or (not option.startswith("--") and "c" in option[1:])
        index += 2 if option in _SHELL_OPTIONS else 1
    rest = arguments[index:]
    if rest[:1] == ("--",):
        rest = rest[1:]
    if not code or not rest:
        return _search(rest, depth, in_runner=in_runner)  # a script: a wrapper that is itself called `vllm` counts
    for command in _simple_commands(rest[0]):
        found = _search(command, depth, in_runner=in_runner)
        if found[0]:
            return found
    return "", ()


def _simple_commands(code: str) -> list[tuple[str, ...]]:
    """Words of each simple command of a piece of shell code, without keywords and assignments in front."""
    commands: list[tuple[str, ...]] = []
    for line in code[:_LONGEST_CODE].replace("\\\n", " ").splitlines():
        command: list[str] = []
        for word in (*_split(line, punctuation=True), ";"):
            if word and all(letter in ";&|()<>" for letter in word):
                if command and word[0] not in "<>":
                    commands.append(tuple(command))
                if word[0] not in "<>":
                    command = []
            elif command or not (word in _SHELL_WORDS or _ASSIGNMENT.match(word)):
                command.append(word)
    return commands


def _split(code: str, *, punctuation: bool = False) -> tuple[str, ...]:
    """Words of shell code; none where its quoting is broken, or goes over several lines."""
    lexer = shlex.shlex(code, posix=True, punctuation_chars=punctuation)
    lexer.whitespace_split = True
    lexer.commenters = "#" if punctuation else ""
    try:
        return tuple(lexer)
    except ValueError:
        return ()


def _anywhere(arguments: tuple[str, ...], depth: int) -> tuple[str, tuple[str, ...]]:
    for index, argument in enumerate(arguments):
        for pattern, engine in _IMAGES:
            if pattern.match(argument):
                return engine, arguments[index:]
        found = _search(arguments[index:], depth, in_runner=True)
        if found[0]:
            return found
    return "", ()
