"""Words and operators of shell code, before anything is expanded (POSIX, Shell Command Language). Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LONGEST_CODE = 4096  # characters; the rest is unknown
_MOST_WORDS = 800  # with operators; as above: any user can write such code, and must not hold us up
_OPERATOR = re.compile(r"&>>|<<<|<<-|&&|\|\||;;&|;;|;&|\|&|&>|>>|>&|<&|<<|<>|>\||[;&|()<>\n]")
REDIRECTIONS = frozenset({"&>>", "<<<", "<<-", "&>", ">>", ">&", "<&", "<<", "<>", ">|", "<", ">"})
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")
_WITH_DEFAULT = re.compile(r"(\w+|[@*])(?:(:?[-=])([^$`'\"\\]*)|:?\?.*)?", re.DOTALL)
ARRAY = "[@]"  # stands for the name of a variable that has several words
_CLOSING: Mapping[str, str] = {"(": ")", "{": "}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a word: text, a variable, or (neither) what is known only when it runs."""

    text: str | None = None
    variable: str = ""
    default: str | None = None  # of ${NAME:-default}
    operator: str = ""  # before the default: - or = (which sets the variable), with : for an empty value too
    quoted: bool = False


Word = tuple[Piece, ...]
NOT_KNOWN = Piece()


class ShellSyntaxError(ValueError):
    """A quote or a bracket without its end."""


def shell_words(code: str) -> list[Word | str]:
    """Split into words and operators (newlines among them). Raises ShellSyntaxError."""
    reader = _Reader(code[:_LONGEST_CODE])
    found = reader.read()
    if len(code) > _LONGEST_CODE or not reader.at_end:
        found.append((NOT_KNOWN,))
    return found


class _Reader:
    def __init__(self, code: str) -> None:
        self._code = code
        self._at = 0
        self._found: list[Word | str] = []
        self._word: list[Piece] | None = None  # None between words
        self._documents: list[str] = []  # ends of the here-documents that begin after this line

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._code)

    def read(self) -> list[Word | str]:
        while not self.at_end and len(self._found) < _MOST_WORDS:
            self._step(self._code[self._at])
        self._end_word()
        return self._found

    def _step(self, letter: str) -> None:
        if letter in " \t\r":
            self._end_word()
            self._at += 1
        elif letter == "#" and self._word is None:
            end = self._code.find("\n", self._at)
            self._at = len(self._code) if end < 0 else end
        elif self._code[self._at : self._at + 2] in ("<(", ">("):
            self._add(Piece(quoted=True))  # one word, such as /dev/fd/63
            self._skip_brackets(self._at + 1)
        elif (operator := _OPERATOR.match(self._code, self._at)) is not None:
            self._operator(operator[0])
        elif letter in "\\'\"$`":
            self._quote(letter)
        else:
            self._add(Piece(text=letter))
            self._at += 1

    def _operator(self, operator: str) -> None:
        if operator in REDIRECTIONS and self._word and all((piece.text or "x").isdigit() for piece in self._word):
            self._word = None  # a file descriptor: 2>&1
        self._end_word()
        self._found.append(operator)
        self._at += len(operator)
        if operator in ("<<", "<<-"):
            end = re.compile(r"[ \t]*\\?(['\"]?)(\w+)\1").match(self._code, self._at)
            if end is not None:
                self._documents.append(end[2])
        elif operator == "\n":
            for end_line in self._documents:
                closing = re.compile(rf"^\t*{end_line}$\n?", re.MULTILINE).search(self._code, self._at)
                self._at = len(self._code) if closing is None else closing.end()
            self._documents = []

    def _quote(self, letter: str) -> None:
        if letter == "\\":
            following = self._code[self._at + 1 : self._at + 2]
            if following != "\n":
                self._add(Piece(text=following, quoted=True))
            self._at += 2
        elif letter == "'":
            end = self._code.find("'", self._at + 1)
            if end < 0:
                raise ShellSyntaxError
            self._add(Piece(text=self._code[self._at + 1 : end], quoted=True))
            self._at = end + 1
        elif letter == '"':
            self._double_quoted()
        elif letter == "`":
            self._backquoted(quoted=False)
        else:
            self._dollar(quoted=False)

    def _double_quoted(self) -> None:
        self._add(Piece(text="", quoted=True))
        self._at += 1
        while (letter := self._code[self._at : self._at + 1]) != '"':
            if not letter:
                raise ShellSyntaxError
            if letter == "$":
                self._dollar(quoted=True)
            elif letter == "`":
                self._backquoted(quoted=True)
            else:
                if letter == "\\" and self._code[self._at + 1 : self._at + 2] in '$`"\\\n':
                    self._at += 1
                    letter = self._code[self._at : self._at + 1].strip("\n")
                self._add(Piece(text=letter, quoted=True))
                self._at += 1
        self._at += 1

    def _backquoted(self, *, quoted: bool) -> None:
        end = self._code.find("`", self._at + 1)
        if end < 0:
            raise ShellSyntaxError
        self._add(Piece(quoted=quoted))
        self._at = end + 1

    def _dollar(self, *, quoted: bool) -> None:
        following = self._code[self._at + 1 : self._at + 2]
        if following in _CLOSING and following:
            begin = self._at + 2
            self._skip_brackets(self._at + 1)
            inner = self._code[begin : self._at - 1]
            found = _WITH_DEFAULT.fullmatch(inner) if following == "{" else None
            if found is not None:
                self._add(Piece(variable=found[1], default=found[3], operator=found[2] or "", quoted=quoted))
            else:
                self._add(Piece(variable=ARRAY if ARRAY in inner else "", quoted=quoted))
        elif (name := _NAME.match(self._code, self._at + 1)) is not None:
            self._add(Piece(variable=name[0], quoted=quoted))
            self._at = name.end()
        elif following in ("'", '"') and following and not quoted:  # $'…' and $"…"
            end = self._code.find(following, self._at + 2)
            if end < 0:
                raise ShellSyntaxError
            self._add(Piece(quoted=True))
            self._at = end + 1
        else:
            self._add(Piece(text="$", quoted=quoted))
            self._at += 1

    def _skip_brackets(self, at: int) -> None:
        """Go on after the bracket that closes the one there."""
        opening, closing = self._code[at], _CLOSING[self._code[at]]
        depth, quote = 0, ""
        while at < len(self._code):
            letter = self._code[at]
            if letter == "\\":
                at += 1
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            elif letter == opening:
                depth += 1
            elif letter == closing:
                depth -= 1
                if not depth:
                    self._at = at + 1
                    return
            at += 1
        raise ShellSyntaxError

    def _add(self, piece: Piece) -> None:
        if self._word is None:
            self._word = []
        last = self._word[-1] if self._word else NOT_KNOWN
        if piece.text is not None and last.text is not None and piece.quoted == last.quoted:
            self._word[-1] = Piece(text=last.text + piece.text, quoted=piece.quoted)
        else:
            self._word.append(piece)

    def _end_word(self) -> None:
        if self._word is not None:
            self._found.append(tuple(self._word))
        self._word = None
