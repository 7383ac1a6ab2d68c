"""Objectives as text: `lane-change(+1) then comfort`, `2 * goal-point(10, 3) + comfort where road-edge`.

    expression = ordered { "where" ordered }        the constraint's levels come first; binds least
    ordered    = sum { "then" sum }                 lexicographic
    sum        = product { "+" product }
    product    = [ number "*" ] owned
    owned      = [ "agent" "(" id ")" ":"  |  "all" ":" ] atom    of which agents of a joint future
    atom       = name [ "(" [ argument { "," argument } ] ")" ]  |  "(" expression ")"
    argument   = [ parameter "=" ] value            a value is a number, a word, or [number, number, ...]

Line breaks are spaces, and `#` starts a comment.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn

from waycode.objectives.base import BaseObjective, EveryAgent
from waycode.objectives.registry import KINDS, OBJECTIVES, ONLY_IN_PYTHON, Parameter, parameters_of
from waycode.objectives.setting import ObjectiveError

TOKEN = re.compile(
    r"(?P<space>\s+|\#[^\n]*)"
    r"|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*)"
    r"|(?P<sign>[()\[\],=+*:])"
)
KEYWORDS = ("then", "where")
_MAX_LETTERS, _MAX_TERMS, _MAX_NESTING = 10_000, 100, 50  # far above what anybody writes
_MAX_NUMBER = 1e9
_SHOWN_LETTERS = 40  # of a word in a message


@dataclass(frozen=True)
class _Token:
    kind: str  # "number", "word", "sign" or "end"
    text: str
    place: int  # of its first character in the text


def parse_objective(text: str) -> BaseObjective:
    """The objective that a text describes. Raises `ObjectiveError` with the position of a mistake."""
    if len(text) > _MAX_LETTERS:
        raise ObjectiveError(f"the objective has {len(text):,} characters, expected at most {_MAX_LETTERS:,}")
    return _Parser(text).whole()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise ObjectiveError(f"{_where(text, place)}: got {text[place]!r}, expected a name, a number or a bracket")
        kind, end = str(match.lastgroup), match.end()
        # After a term, "+" adds ("comfort +2 * road-edge"); elsewhere it is a sign ("lane-change(+1)").
        if kind == "number" and match.group()[0] == "+" and tokens and _ends_a_term(tokens[-1]):
            kind, end = "sign", place + 1
        if kind != "space":
            tokens.append(_Token(kind, text[place:end], place))
        place = end
    return [*tokens, _Token("end", "the end", len(text))]


def _ends_a_term(token: _Token) -> bool:
    return (token.kind == "word" and token.text not in KEYWORDS) or token.text == ")"


def _where(text: str, place: int) -> str:
    line, column = text.count("\n", 0, place) + 1, place - (text.rfind("\n", 0, place) + 1) + 1
    return f"objective, line {line}, character {column}" if "\n" in text else f"objective, character {column}"


class _Parser:
    """Recursive descent: one method per line of the grammar."""

    def __init__(self, text: str):
        self.text, self.tokens, self.next = text, _tokens(text), 0
        self.nesting, self.num_terms = 0, 0

    def whole(self) -> BaseObjective:
        result = self.expression()
        if self.token.kind != "end":
            self.expected("'+', 'then', 'where' or the end")
        return result

    def expression(self) -> BaseObjective:
        result = self.ordered()
        while self.accept("where"):
            result = result.where(self.ordered())
        return result

    def ordered(self) -> BaseObjective:
        result = self.sum()
        while self.accept("then"):
            result = result.then(self.sum())
        return result

    def sum(self) -> BaseObjective:
        result = self.product()
        while self.token.text == "+":
            place = self.take().place
            result = self.made(place, operator.add, result, self.product())
        return result

    def product(self) -> BaseObjective:
        if self.token.kind != "number":
            return self.owned()
        weight = self.take()
        self.expect("*")
        return self.made(weight.place, operator.mul, self.owned(), self.number(weight))

    def owned(self) -> BaseObjective:
        if self.accept("all"):
            self.expect(":")
            return EveryAgent((self.atom(),))
        if not self.accept("agent"):
            return self.atom()
        self.expect("(")
        agent_id = self.agent_id()
        self.expect(")")
        self.expect(":")
        return self.atom().for_agent(agent_id)

    def atom(self) -> BaseObjective:
        token = self.token
        if self.accept("("):
            self.nesting += 1
            if self.nesting > _MAX_NESTING:
                self.fail(token.place, f"brackets are nested too deeply, expected at most {_MAX_NESTING} levels")
            result = self.expression()
            self.expect(")")
            self.nesting -= 1
            return result
        if token.kind != "word" or token.text in KEYWORDS:
            self.expected("the name of an objective, a weight or '('")
        if token.text not in OBJECTIVES:
            known = _similar(token.text[:_SHOWN_LETTERS], list(OBJECTIVES))
            self.fail(token.place, f"no objective is called {_shown(token.text)}{known}")
        self.take()
        self.num_terms += 1
        if self.num_terms > _MAX_TERMS:
            self.fail(token.place, f"the objective goes on after {_MAX_TERMS} terms, expected no more")
        arguments = self.arguments(token.text) if self.accept("(") else {}
        missing = [
            one.name for one in parameters_of(OBJECTIVES[token.text]) if one.required and one.name not in arguments
        ]
        if missing:
            self.fail(token.place, f"{token.text} lacks {' and '.join(missing)}")
        return self.made(token.place, OBJECTIVES[token.text], **arguments)

    def arguments(self, name: str) -> dict[str, Any]:
        """The arguments in brackets, by parameter name."""
        given: dict[str, Any] = {}
        by_place = [parameter for parameter in parameters_of(OBJECTIVES[name]) if parameter.positional]
        while not self.accept(")"):
            if given and not self.accept(","):
                self.expected("',' or ')'")
            place = self.token.place
            if self.token.kind == "end":
                self.expected("',' or ')'" if given else "an argument or ')'")
            if self.tokens[self.next + 1].text == "=":
                parameter = self.named_parameter(name)
                by_place = []  # as in Python, positional arguments come first
            elif by_place:
                parameter = by_place.pop(0)
            else:
                self.expected(f"')', or an argument of {name} with its name: {_names(name)}" if _names(name) else "')'")
            if parameter.name in given:
                self.fail(place, f"{parameter.name} of {name} is given twice")
            given[parameter.name] = self.value(name, parameter)
        return given

    def named_parameter(self, name: str) -> Parameter:
        token = self.take()
        self.expect("=")
        known = {parameter.name: parameter for parameter in parameters_of(OBJECTIVES[name])}
        if token.text not in known:
            self.fail(token.place, f"{name} has no {_shown(token.text)}, expected {_names(name) or 'no arguments'}")
        return known[token.text]

    def value(self, name: str, parameter: Parameter) -> Any:
        if parameter.kind == KINDS[str]:
            return self.agent_id()
        token = self.take()
        if parameter.choices and token.text in parameter.choices:
            return token.text
        if parameter.kind == KINDS[bool] and token.text in ("true", "false"):
            return token.text == "true"
        if parameter.kind == KINDS[float] and token.kind == "number":
            return self.number(token)
        if parameter.kind == KINDS[int] and token.kind == "number" and self.number(token).is_integer():
            return int(self.number(token))
        if parameter.kind == KINDS[tuple[float, ...]] and token.text == "[":
            return self.numbers()
        return self.fail(token.place, f"{parameter.name} of {name} is {_shown(token.text)}, expected: {parameter.kind}")

    def number(self, token: _Token) -> float:
        value = float(token.text)
        if not abs(value) <= _MAX_NUMBER:
            self.fail(token.place, f"got {_shown(token.text)}, expected a number of at most {_MAX_NUMBER:g}")
        return value

    def agent_id(self) -> str:
        """An id as it is written: it may consist of several tokens, as `car.12` does."""
        begin = self.token.place
        while self.token.kind in ("word", "number"):
            self.take()
        if self.token.place == begin:
            self.expected("the id of an agent")
        return self.text[begin : self.token.place].strip()

    def numbers(self) -> tuple[float, ...]:
        values: list[float] = []
        while not self.accept("]"):
            if values and not self.accept(","):
                self.expected("',' or ']'")
            if self.token.kind != "number":
                self.expected("a number")
            values.append(self.number(self.take()))
        return tuple(values)

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def take(self) -> _Token:
        token = self.token
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def accept(self, text: str) -> bool:
        return self.token.kind != "end" and self.token.text == text and bool(self.take())

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.expected(repr(text))

    def expected(self, what: str) -> NoReturn:
        got = self.token.text if self.token.kind == "end" else _shown(self.token.text)
        self.fail(self.token.place, f"got {got}, expected {what}")

    def fail(self, place: int, message: str) -> NoReturn:
        raise ObjectiveError(f"{_where(self.text, place)}: {message}")

    def made(self, place: int, make: Callable[..., BaseObjective], *parts: Any, **arguments: Any) -> BaseObjective:
        """Makes an objective; its errors get a position in the text."""
        try:
            return make(*parts, **arguments)
        except ObjectiveError as error:
            self.fail(place, str(error))


def _shown(text: str) -> str:
    """What was typed, in quotes; only the beginning of long text."""
    return repr(text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…")


def _similar(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=3)
    return f": did you mean {' or '.join(close)}?" if close else f", available are {', '.join(known)}"


def _names(name: str) -> str:
    return ", ".join(
        parameter.name for parameter in parameters_of(OBJECTIVES[name]) if parameter.kind != ONLY_IN_PYTHON
    )
