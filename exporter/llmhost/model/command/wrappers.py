"""Wrappers and runners: programs that run the command in their arguments. Pure.

`systemd-run` is none: what it starts lives in another unit.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmhost.model.command.environment import Environment, assignments
from llmhost.model.command.words import SOME, is_known, split_words

# Wrapper → its options that take a value as an argument of their own (its manual page); *N: N words before the command.
_WRAPPERS: Mapping[str, str] = {
    "aa-exec": "-p --profile -n --namespace",
    "busybox": "",
    "catatonit": "",
    "catchsegv": "",
    "cgexec": "-g",
    "choom": "-n --adjust",
    "chpst": "-u -U -b -/ -n -l -L -m -d -o -p -f -c -r -t -e",
    "chronic": "",
    "chroot": "*1",
    "chrt": "-T -P -D --sched-runtime --sched-period --sched-deadline *1",
    "command": "",
    "ddtrace-run": "",
    "doas": "-C -u",
    "dumb-init": "-r --rewrite",
    "env": "-u --unset -C --chdir -S --split-string",
    "envdir": "*1",
    "exec": "-a",
    "fakeroot": "-l --lib -i -s -b",
    "flock": "-w --wait --timeout -E --conflict-exit-code *1",
    "gosu": "*1",
    "ionice": "-c --class -n --classdata",
    "nice": "-n --adjustment",
    "nohup": "",
    "numactl": "-i --interleave -w --weighted-interleave -p --preferred -P --preferred-many -m --membind "
    "-N --cpunodebind -C --physcpubind",
    "opentelemetry-instrument": "--traces_exporter --metrics_exporter --logs_exporter --service_name "
    "--exporter_otlp_endpoint --id_generator --propagators",
    "pkexec": "--user",
    "prlimit": "",
    "runuser": "-u --user -g --group -G --supp-group -w --whitelist-environment -s --shell -c --command",
    "s6-setuidgid": "*1",
    "setpriv": "--reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits --pdeathsig",
    "setsid": "",
    "setuidgid": "*1",
    "softlimit": "-a -c -d -f -l -m -o -p -r -s -t",
    "stdbuf": "-i --input -o --output -e --error",
    "su": "-g --group -G --supp-group -w --whitelist-environment -s --shell -c --command",
    "su-exec": "*1",
    "sudo": "-u --user -g --group -C --close-from -D --chdir -h --host -p --prompt -r --role -t --type -T "
    "--command-timeout -R --chroot -U --other-user",
    "systemd-cat": "-t --identifier -p --priority --stderr-priority --level-prefix --namespace",
    "systemd-inhibit": "--what --who --why --mode",
    "taskset": "*1",
    "time": "-f --format -o --output",
    "timeout": "-s --signal -k --kill-after *1",
    "tini": "-p -e",
    "tini-static": "-p -e",
    "unbuffer": "",
    "unshare": "-S --setuid -G --setgid -R --root -w --wd",
    "xvfb-run": "-e --error-file -f --auth-file -n --server-num -p --xauth-protocol -s --server-args -w --wait",
}
_WORDS = re.compile(r"\*(\d)")
_ASSIGNS = frozenset({"env", "sudo", "doas"})  # take NAME=value words
_CLEARS: Mapping[str, frozenset[str]] = {
    "env": frozenset({"-i", "-", "--ignore-environment"}),
    "setpriv": frozenset({"--reset-env"}),
    "exec": frozenset({"-c"}),
}
_LOGIN = frozenset({"-", "-l", "-i", "--login"})  # options of su, runuser and sudo: a shell that reads its profile
_KEEPS = frozenset({("-E", ""), ("--preserve-env", "")})  # of sudo; with names, it keeps those alone
_SUBSTITUTES = frozenset({"su", "runuser"})
_DROPS = frozenset({"sudo", "doas", "pkexec"})
_CHANGES_ENVIRONMENT = frozenset({*_ASSIGNS, *_SUBSTITUTES, *_DROPS, "chpst", "setpriv"})
_FILLED = "an environment directory"

# Programs with too many options to know: after these words, a command is looked for at every argument.
_RUNNERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "uv": (("run",), ("tool", "run")),
    "uvx": ((),),
    "pipx": (("run",),),
    "pipenv": (("run",),),
    "poetry": (("run",),),
    "pdm": (("run",),),
    "hatch": (("run",),),
    "pixi": (("run",),),
    "rye": (("run",),),
    "conda": (("run",),),
    "mamba": (("run",),),
    "micromamba": (("run",),),
    "mise": (("exec",), ("x",)),
    "nix": (("develop",), ("shell",), ("run",)),
    "apptainer": (("exec",), ("run",)),
    "singularity": (("exec",), ("run",)),
    "enroot": (("start",),),
    "nsys": (("profile",), ("launch",)),
    "ncu": ((),),
    "py-spy": (("record",),),
    "ray": (("symmetric-run",),),
    "torchrun": ((),),
    "mpirun": ((),),
    "srun": ((),),
    "nsenter": ((),),
    "ip": (("netns", "exec"),),
    "firejail": ((),),
    "bwrap": ((),),
    "newrelic-admin": (("run-program",), ("run-python",)),
    "op": (("run",),),
    "doppler": (("run",),),
    "infisical": (("run",),),
    "aws-vault": (("exec",),),
    "llmhost": (("guard",),),
    "direnv": (("exec",),),
    "dotenv": ((),),
}
_FILLS = frozenset(
    {"op", "doppler", "infisical", "aws-vault", "direnv", "dotenv", "mise", "nix", "bwrap", "srun", "mpirun", "pipenv"}
)
_INTO_CONTAINER = re.compile(r"(?:APPTAINER|SINGULARITY)ENV_(\w+)")  # apptainer.org/docs, Environment and Metadata
_OPENING = frozenset({"--env-file", "--env-files", "--cleanenv"})
_ASSIGNING = frozenset({"--env", "--env-var"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """The command that a wrapper runs: a command line, or code for a shell."""

    argv: tuple[str, ...]
    environment: Environment
    code: str | None = None
    surely: bool = True  # False: the command begins somewhere in `argv`


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options in front of a command."""

    given: tuple[tuple[str, str], ...]  # name and value; the value of a flag is ""
    rest: tuple[str, ...]
    surely: bool = True  # False where some of them are not known

    def last(self, *names: str) -> str | None:
        return next((value for name, value in reversed(self.given) if name in names), None)

    def every(self, *names: str) -> tuple[str, ...]:
        return tuple(value for name, value in self.given if name in names)


def spelled(names: str, dashes: str = "--") -> frozenset[str]:
    return frozenset(f"{dashes}{name}" for name in names.split())


def split_options(
    arguments: Sequence[str], with_value: frozenset[str], *, flags: frozenset[str] | None = None
) -> Options:
    """Read options up to the first word that is none, or "--". Short ones may stand together: -it, -iu USER.

    With `flags`, long options that are not among them take a value.
    """
    given: list[tuple[str, str]] = []
    index, surely = 0, True
    while index < len(arguments):
        word = arguments[index]
        if word == SOME:
            surely = False
            index += 1
            continue
        if word in ("-", "--") or not word.startswith("-"):
            index += word == "--"
            break
        index += 1
        surely = surely and is_known(word.partition("=")[0])
        following = arguments[index] if index < len(arguments) else ""
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            takes = name in with_value if flags is None else name not in flags
            if not equals and takes:
                value = following
                index += 1
            given.append((name, value))
            continue
        for position, letter in enumerate(word[1:], 2):
            name = f"-{letter}"
            if name not in with_value:
                given.append((name, ""))
                continue
            value = word[position:].removeprefix("=")
            if not value:
                value = following
                index += 1
            given.append((name, value))
            break
    return Options(given=tuple(given), rest=tuple(arguments[index:]), surely=surely)


def unwrapped(program: str, arguments: Sequence[str], environment: Environment) -> Wrapped | None:
    """Give the command of a wrapper; None where the program is none."""
    if program not in _WRAPPERS:
        return None
    spelled = _WRAPPERS[program].split()
    options = split_options(arguments, frozenset(spelled))
    rest = options.rest
    names = {name for name, _ in options.given}
    dash = rest[:1] == ("-",)  # of env: -i; of su: a login shell
    rest = rest[dash:]
    if dash:
        names.add("-")
    if _CLEARS.get(program, frozenset()) & names:
        environment = Environment(complete=True)
    environment = environment.with_values(dict.fromkeys(options.every("-u", "--unset") if program == "env" else ()))
    if program == "envdir" or (program == "chpst" and "-e" in names):
        environment = environment.opened(_FILLED)
    if not options.surely and program in _CHANGES_ENVIRONMENT:
        environment = environment.opened(f"an option of {program}")
    if program in (*_SUBSTITUTES, "sudo") and _LOGIN & names:
        environment = environment.opened("the profile of a login shell")
    elif program in _DROPS and _KEEPS.isdisjoint(options.given):
        environment = environment.doubted(f"the rules of {program}")
    if program == "command" and names & {"-v", "-V"}:
        rest = ()
    rest = (
        rest[sum(int(found[1]) for word in spelled if (found := _WORDS.fullmatch(word))) :] if options.surely else rest
    )
    code = options.last("-c", "--command") if program in _SUBSTITUTES else None
    if code is None and program in (*_SUBSTITUTES, "flock") and not names & {"-u", "--user"}:
        code = _code_after(rest)
    if program == "env" and (text := options.last("-S", "--split-string")) is not None:
        rest = (*split_words(text), *rest)
    if program in _ASSIGNS:
        values, first = assignments(rest)
        environment, rest = environment.with_values(values), rest[first:]
        if rest and not is_known(rest[0].partition("=")[0]):
            environment = environment.opened(f"an argument of {program}")
    return Wrapped(argv=rest, environment=environment, code=code, surely=options.surely)


def _code_after(words: Sequence[str]) -> str | None:
    """Find the -c of `su USER -c CODE`, where options follow the user."""
    for index, word in enumerate(words[:-1]):
        if word in ("-c", "--command"):
            return words[index + 1]
    return None


def run_by(program: str, arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Give what a runner was given, in which its command begins somewhere; None where the program runs none."""
    for words in _RUNNERS.get(program, ()):
        for index in range(len(arguments) - len(words) + 1):
            if tuple(arguments[index : index + len(words)]) == words:
                return tuple(arguments[index + len(words) :])
    return None


def environment_by(program: str, before: Sequence[str], environment: Environment) -> Environment:
    """Give the environment that a runner makes, by its arguments before the command."""
    if program in ("apptainer", "singularity"):
        passed = ((_INTO_CONTAINER.fullmatch(name), value) for name, value in environment.values.items())
        environment = environment.with_values({found[1]: value for found, value in passed if found is not None})
    for index, word in enumerate(before):
        name, equals, value = word.partition("=")
        if name in _OPENING or word == SOME or not is_known(name):
            environment = environment.opened(f"an option of {program}")
        elif name in _ASSIGNING or (word == "-e" and program == "nsys"):
            text = value if equals else "".join(before[index + 1 : index + 2])
            found, read = assignments(text.split(",") if is_known(text) else [text])
            environment = environment.with_values(found) if read else environment.opened(f"an option of {program}")
    return environment.opened(f"{program} run") if program in _FILLS else environment
