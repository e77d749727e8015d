"""Simple commands of shell code, each with its words expanded and its environment. Pure.

What runs is not known where it depends on a result: after `&&` and `||`, and in branches and loops, a command may run
or not, and a variable that is set there has one value or the other.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename

from llmhost.model.command.environment import Environment, merged
from llmhost.model.command.shell_words import ARRAY, NOT_KNOWN, REDIRECTIONS, Piece, ShellSyntaxError, Word, shell_words
from llmhost.model.command.words import SOME, UNKNOWN, is_known, joined

_LOOPS = frozenset({"while", "until", "for", "select"})
_OPENING = frozenset({"{", "if", "case", *_LOOPS})
_CLOSING: Mapping[str, frozenset[str]] = {  # closing word → the opening ones
    "}": frozenset({"{"}),
    ")": frozenset({"("}),
    "fi": frozenset({"if"}),
    "done": _LOOPS,
    "esac": frozenset({"case"}),
}
_BRANCHES = frozenset({"else", "elif"})
_SKIPPED = frozenset({"then", "do", "!", "time", "coproc"})
_DECLARING = frozenset({"export", "declare", "typeset", "local", "readonly"})
_CHANGES_VARIABLES = frozenset({"read", "mapfile", "readarray", "getopts", "printf", "let"})
_UNREAD_CODE: Mapping[str, str] = {  # what may set any variable of the shell
    "source": "a sourced file",
    ".": "a sourced file",
    "eval": "eval",
    "module": "an environment module",
    "ml": "an environment module",
}
_OF_THE_SHELL = _DECLARING | _CHANGES_VARIABLES | _UNREAD_CODE.keys() | {"unset", "shift", "set", "builtin"}
_NAME = re.compile(r"[A-Za-z_]\w*")
_SETS = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_DEEPEST = 4  # eval in eval
_FUNCTION = "what is set before a function is called"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """`branch`: it may run or not. `repeats`: perhaps more than once at the same time."""

    words: tuple[str, ...]
    environment: Environment
    background: bool = False
    branch: bool = False
    repeats: bool = False
    replaces: bool = False  # by `exec`: nothing after it runs


@dataclass(frozen=True, slots=True)
class _Variables:
    """`environment` is what programs see; `own` are variables of the shell alone."""

    environment: Environment
    own: Environment = field(default_factory=Environment)


@dataclass(frozen=True, slots=True)
class _Block:
    keyword: str
    before: _Variables
    first: int  # of the commands in it
    ends: list[_Variables]  # of its branches
    function: bool


def shell_commands(code: str, environment: Environment, arguments: Sequence[str]) -> list[ShellCommand]:
    """Read the code of `sh -c`, with the arguments after it: "$0", "$1", …; nothing where its quoting is broken."""
    shell = _Shell(environment, tuple(arguments[1:]))
    try:
        shell.run(code)
    except ShellSyntaxError:
        return []
    return shell.found


class _Shell:
    def __init__(self, environment: Environment, positional: tuple[str, ...] | None) -> None:
        self.found: list[ShellCommand] = []
        self._variables = _Variables(environment)
        self._exports_all = False
        self._exported: set[str] = set()
        self._positional = positional  # None where it is not known
        self._blocks: list[_Block] = []
        self._depth = 0
        self._defines = False  # the next block is the body of a function
        self._list_first = 0  # command of the present and-or list
        self._list_before: _Variables | None = None  # once its next command may not run

    def run(self, code: str) -> None:
        if self._depth >= _DEEPEST:
            return
        self._depth += 1
        read = [*shell_words(code), "\n"]
        words: list[Word] = []
        redirected = array = False
        for index, found in enumerate(read):
            if array:
                array = found != ")"
            elif redirected:
                redirected = False
            elif not isinstance(found, str):
                words.append(found)
            elif found in REDIRECTIONS:
                redirected = True
            elif found == "(" and words:
                if read[index + 1] == ")":  # a function, which is taken to be called
                    words, self._positional, self._defines = [], None, True
                else:
                    words[-1] = (*words[-1], NOT_KNOWN)
                array = True
            else:
                self._end_command([] if found == ")" and self._is_in("case") else words)
                words = []
                self._operator(found)
        self._depth -= 1

    def _is_in(self, *keywords: str) -> bool:
        return bool(self._blocks) and self._blocks[-1].keyword in keywords

    def _operator(self, operator: str) -> None:
        if operator in ("&&", "||"):
            self._list_before = self._list_before or self._variables
        elif operator == "&":
            self.found[self._list_first :] = [
                replace(command, background=True) for command in self.found[self._list_first :]
            ]
            self._end_list()
        elif operator == "(":
            self._open("(")
        elif operator == ")" and self._is_in("case"):
            self._variables = self._blocks[-1].before
        elif operator == ")":
            self._close(operator)
        elif operator in (";;", ";&", ";;&"):
            self._end_list()
            self._end_branch()
        elif operator in (";", "\n"):
            self._end_list()

    def _end_list(self) -> None:
        if self._list_before is not None:
            self._variables = _merged((self._list_before, self._variables))
        self._list_before = None
        self._list_first = len(self.found)

    def _end_branch(self) -> None:
        if self._blocks:
            self._blocks[-1].ends.append(self._variables)
            self._variables = self._blocks[-1].before

    def _open(self, keyword: str) -> None:
        self._blocks.append(_Block(keyword, self._variables, self._list_first, [self._variables], self._defines))
        if self._defines:
            self._open_up(_FUNCTION)
        self._defines = False

    def _close(self, keyword: str) -> None:
        self._end_list()
        if not self._is_in(*_CLOSING[keyword]):
            return
        block = self._blocks.pop()
        self._list_first = block.first
        if block.function:
            body, self._variables = self._variables, block.before
            self._set(dict.fromkeys(body.environment.values, UNKNOWN), exports=True)
            self._set(dict.fromkeys(body.own.values, UNKNOWN))
            if body.environment.unread != _FUNCTION:
                self._open_up(body.environment.unread)
        elif keyword == ")":
            self._variables = block.before
        elif keyword != "}":
            self._variables = _merged((*block.ends, self._variables))

    def _end_command(self, words: list[Word]) -> None:
        while words and (keyword := _literal(words[0])) is not None:
            if keyword in _OPENING:
                self._open(keyword)
                if keyword in ("for", "select"):
                    self._begin_loop(words[1:])
                    return
                if keyword == "case":
                    return
            elif keyword in _CLOSING:
                self._close(keyword)
                return
            elif keyword in _BRANCHES:
                self._end_list()
                self._end_branch()
            elif keyword == "function":
                self._positional, self._defines = None, True
                words = words[1:]
            elif keyword not in _SKIPPED:
                break
            words = words[1:]
        if words:
            self._simple(words)

    def _begin_loop(self, words: list[Word]) -> None:
        name = _literal(words[0]) if words else None
        if name is None:  # for ((…))
            self._open_up("a loop")
        else:
            self._set({name: UNKNOWN})

    def _simple(self, words: list[Word]) -> None:
        given: dict[str, str | None] = {}
        while words and (found := _assignment(words[0])) is not None:
            name, value = found
            given[name] = self._unsplit(value)
            words = words[1:]
        if not words:
            self._set(given)
            return
        expanded: list[str] = []
        for word in words:
            fields = self._expanded(word)
            expanded += fields if expanded or len(word) == 1 else fields[:1]  # a program's path is one word
        if not expanded:
            self._set(given)
        elif not self._is_builtin(expanded):
            self._add(tuple(expanded), self._variables.environment.with_values(given))
            if not is_known(expanded[0]) and "/" not in expanded[0]:
                self._open_up("a command that is not known")

    def _add(self, words: tuple[str, ...], environment: Environment) -> None:
        keywords = {block.keyword for block in self._blocks}
        self.found.append(
            ShellCommand(
                words=words,
                environment=environment,
                branch=self._list_before is not None or bool(keywords - {"{", "("}),
                repeats=bool(keywords & _LOOPS),
                replaces=words[0] == "exec",
            )
        )

    def _is_builtin(self, words: list[str]) -> bool:
        """Do what a command does to the shell itself; False for a program."""
        while words[0] in ("builtin", "command") and {*words[1:2]} & _OF_THE_SHELL:
            words = words[1:]
        name, arguments = words[0], words[1:]
        if name in _DECLARING:
            self._declare(name, arguments)
        elif name in _UNREAD_CODE:
            self._run_unread(name, arguments)
        elif name == "unset":
            self._exported.difference_update(arguments)
            self._set(dict.fromkeys(filter(_NAME.fullmatch, arguments)))
        elif name in _CHANGES_VARIABLES:
            names = _NAME.findall(" ".join(arguments)) if name == "let" else filter(_NAME.fullmatch, arguments)
            self._set(dict.fromkeys(names, UNKNOWN))
        elif name == "shift":
            self._positional = None
        elif name == "set":
            self._exports_all = self._exports_all or any(
                word[:1] == "-" and word[1:2] != "-" and "a" in word for word in arguments
            )
            if "--" in arguments:
                self._positional = tuple(arguments[arguments.index("--") + 1 :])
            elif arguments and arguments[0][:1] not in ("-", "+"):
                self._positional = tuple(arguments)
        else:
            return False
        return True

    def _declare(self, name: str, arguments: list[str]) -> None:
        exports = name == "export" or (
            name != "readonly" and any(word[:1] == "-" and "x" in word for word in arguments)
        )
        for word in arguments:
            assigned = re.match(r"([A-Za-z_]\w*)=", word)
            if not is_known(word) and assigned is None:
                self._open_up("export")
            elif assigned is not None:
                self._set({assigned[1]: word[assigned.end() :]}, exports=exports)
            elif exports:
                self._exported.add(word)
                if word in self._variables.own.values:
                    self._set({word: self._variables.own.values[word]})

    def _run_unread(self, name: str, arguments: list[str]) -> None:
        if name in ("source", ".") and arguments and basename(arguments[0]) == "activate" and is_known(arguments[0]):
            return  # a virtualenv's: PATH and its own variables
        if name == "eval" and arguments and all(map(is_known, arguments)):
            self.run(" ".join(arguments))
            return
        self._open_up(_UNREAD_CODE[name])
        if name == "eval":
            self._add((SOME,), self._variables.environment)

    def _open_up(self, what: str) -> None:
        self._variables = _Variables(self._variables.environment.opened(what))

    def _set(self, values: Mapping[str, str | None], *, exports: bool = False) -> None:
        """Set variables of the shell; programs see those that are exported, or came from the environment."""
        for name, value in values.items():
            before = self._variables.environment.get(name)
            seen = exports or self._exports_all or name in self._exported
            seen = seen or value is None or (before is not None and is_known(before))
            environment, own = self._variables.environment, self._variables.own
            if seen:
                environment = environment.with_values({name: value})
            self._variables = _Variables(environment, own.with_values({name: value}))

    def _value(self, piece: Piece) -> str | None:
        name = piece.variable
        if not name:
            return UNKNOWN
        if name.isdecimal():
            index = int(name[:3]) - 1
            if self._positional is None or index < 0 or SOME in self._positional:
                value: str | None = UNKNOWN
            else:
                value = self._positional[index] if index < len(self._positional) else None
        elif not _NAME.fullmatch(name):
            return UNKNOWN
        elif name in self._variables.own.values:
            value = self._variables.own.values[name]
        else:
            value = self._variables.environment.referred(name)
        if piece.default is None or (value if piece.operator[0] == ":" else value is not None):
            return value
        if piece.operator[-1] == "=":
            self._set({name: piece.default})
        return piece.default

    def _expanded(self, word: Word) -> list[str]:
        """Expand a word into none, one or more; SOME is where a variable without quotes may have several."""
        essential = [piece for piece in word if piece.text != ""]
        if len(essential) == 1 and essential[0].variable in ("@", "*"):
            return [SOME] if self._positional is None else list(self._positional)
        if any(piece.variable in (ARRAY, "@") for piece in word):
            return [SOME]
        fields: list[str] = []
        parts: list[str] = []
        quoted = splits = False
        for piece in word:
            value = piece.text if piece.text is not None else self._value(piece)
            quoted = quoted or piece.quoted
            if value is None:
                continue
            if piece.quoted or piece.text is not None:
                parts.append(value)
            elif not is_known(value):
                parts.append(UNKNOWN)
                splits = True
            else:
                first, *more = re.split(r"[ \t\n]+", value)
                parts.append(first)
                for field in more:
                    fields.append("".join(parts))
                    parts = [field]
        last = joined(parts)
        if splits and last == UNKNOWN:
            return [*filter(None, fields), SOME]
        if last or quoted:
            fields.append(last)
        return [*fields, SOME] if splits else fields

    def _unsplit(self, word: Word) -> str:
        values = (piece.text if piece.text is not None else self._value(piece) for piece in word)
        return joined(value or "" for value in values)


def _literal(word: Word) -> str | None:
    """Give a word that is text without quotes; None for others."""
    if any(piece.quoted or piece.text is None for piece in word):
        return None
    return "".join(piece.text or "" for piece in word)


def _assignment(word: Word) -> tuple[str, Word] | None:
    """Take NAME=value apart; of NAME+=value the value is not known."""
    begin = word[0].text
    found = _SETS.match(begin) if begin is not None and not word[0].quoted else None
    if begin is None or found is None:
        return None
    if found[2]:
        return found[1], (NOT_KNOWN,)
    return found[1], (Piece(text=begin[found.end() :]), *word[1:])


def _merged(variables: Sequence[_Variables]) -> _Variables:
    return _Variables(merged([each.environment for each in variables]), merged([each.own for each in variables]))
