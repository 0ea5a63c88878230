"""A second, slow reading of the protocol to hold the parser against: its own JSON reader and its own judgement.

It shares nothing with ``arena_pipeline.arena.parser``. The reader walks the characters by the grammar of RFC 8259 (plus
NaN, Infinity and -Infinity as values) and yields tagged trees: ``("object", ((key, tree), ...))`` with every pair kept,
``("list", (tree, ...))``, ``("string", text)``, ``("integer", digits)``, ``("other", text)``, ``("true",)``,
``("false",)``, ``("null",)``. The judgement compares trees with the trees of what the sender may say.
"""

from __future__ import annotations

from typing import Any

from arena_pipeline.arena.observation import legal_actions, observe
from arena_pipeline.arena.state import Action, State

Tree = tuple[Any, ...]
Reading = tuple[str | None, bool, bool, bool, int, int]
"""Error code, schema_valid, supported, legal, facts, unsupported facts."""

SPACE = " \t\r\n"
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
WORDS: dict[str, Tree] = {
    "true": ("true",),
    "false": ("false",),
    "null": ("null",),
    "NaN": ("other", "NaN"),
    "Infinity": ("other", "Infinity"),
    "-Infinity": ("other", "-Infinity"),
}


class NoJson(Exception):
    """The text is not one JSON value within the limits."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def skip(self) -> None:
        while self.peek() and self.peek() in SPACE:
            self.at += 1

    def take(self, expected: str) -> None:
        if not self.text.startswith(expected, self.at):
            raise NoJson
        self.at += len(expected)

    def value(self, depth: int) -> Tree:
        if depth > 64 and self.peek() in ("{", "["):
            raise NoJson
        if self.peek() == "{":
            return ("object", tuple(self.members("{", "}", depth)))
        if self.peek() == "[":
            return ("list", tuple(self.members("[", "]", depth)))
        if self.peek() == '"':
            return ("string", self.string())
        for word, tree in WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return tree
        return self.number()

    def members(self, opening: str, closing: str, depth: int) -> list[Any]:
        self.take(opening)
        found: list[Any] = []
        self.skip()
        if self.peek() == closing:
            self.take(closing)
            return found
        while True:
            self.skip()
            if opening == "{":
                key = self.string()
                self.skip()
                self.take(":")
                self.skip()
                found.append((key, self.value(depth + 1)))
            else:
                found.append(self.value(depth + 1))
            self.skip()
            if self.peek() == closing:
                self.take(closing)
                return found
            self.take(",")

    def string(self) -> str:
        self.take('"')
        units = ""
        while self.peek() != '"':
            character = self.peek()
            if character < " ":  # the end of the text, too
                raise NoJson
            self.at += 1
            if character == "\\":
                character = self.escape()
            units += character
        self.take('"')
        return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def escape(self) -> str:
        kind = self.peek()
        self.at += 1
        if kind in ESCAPES:
            return ESCAPES[kind]
        digits = self.text[self.at : self.at + 4]
        if kind != "u" or len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise NoJson
        self.at += 4
        return chr(int(digits, 16))

    def digits(self) -> str:
        start = self.at
        while self.peek() and self.peek() in "0123456789":
            self.at += 1
        if self.at == start:
            raise NoJson
        return self.text[start : self.at]

    def number(self) -> Tree:
        start = self.at
        if self.peek() == "-":
            self.at += 1
        if self.peek() == "0":
            self.at += 1
        else:
            self.digits()
        whole = self.at
        if self.peek() == ".":
            self.at += 1
            self.digits()
        if self.peek() and self.peek() in "eE":
            self.at += 1
            if self.peek() and self.peek() in "+-":
                self.at += 1
            self.digits()
        text = self.text[start : self.at]
        if self.at != whole or len(text.lstrip("-")) > 4300:
            return ("other", text)
        return ("integer", "0" if text == "-0" else text)


def read(text: str) -> Tree:
    """The tagged tree of a text; ``NoJson`` if it is none."""
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise NoJson from None
    if size > 65_536:
        raise NoJson
    reader = _Reader(text)
    reader.skip()
    tree = reader.value(1)
    reader.skip()
    if reader.peek():
        raise NoJson
    return tree


def tree_of(value: Any) -> Tree:
    """The tagged tree of a value that the project wrote."""
    if isinstance(value, dict):
        return ("object", tuple((key, tree_of(item)) for key, item in value.items()))
    if isinstance(value, str):
        return ("string", value)
    if value is None:
        return ("null",)
    if isinstance(value, bool):
        return ("true",) if value else ("false",)
    return ("integer", str(value))


def fields(tree: Tree) -> list[tuple[str, Tree]] | None:
    """An object's pairs sorted by key; None for anything else."""
    return sorted(tree[1]) if tree[0] == "object" else None


def names(tree: Tree) -> list[str]:
    """An object's keys, sorted, repetitions included."""
    return [key for key, _ in fields(tree) or []]


def broadcast_reading(text: str, state: State, agent_id: str) -> Reading:
    """What the specification says of a broadcast."""
    try:
        tree = read(text)
    except NoJson:
        return ("invalid_json", False, False, False, 0, 0)
    if tree[0] != "object":
        return ("not_object", False, False, False, 0, 0)
    if names(tree) != ["facts", "intent", "request_resource"]:
        return ("broadcast_schema", False, False, False, 0, 0)
    body = dict(tree[1])
    form: list[str] = []  # codes of rules of form, in the order of the checks, mixed with the others in `codes`
    codes: list[str] = []

    def broken(code: str, of_form: bool) -> None:
        codes.append(code)
        if of_form:
            form.append(code)

    facts = body["facts"][1] if body["facts"][0] == "list" else None
    if facts is None or len(facts) >= 4:
        broken("facts_schema", True)
        facts = ()
    observed = [sorted(tree_of(fact)[1]) for fact in observe(state, agent_id)["known_nodes"]]
    earlier: list[Tree] = []
    unsupported = 0
    for fact in facts:
        if code := fact_code(fact, earlier):
            broken(code, True)
        elif fields(fact) not in observed:
            broken("unsupported_fact", False)
            unsupported += 1
        if names(fact).count("node") == 1:
            earlier.append(dict(fact[1])["node"])
    legal_trees = [("null",), *(tree_of(action.to_dict()) for action in legal_actions(state, agent_id))]
    intent = body["intent"]
    legal = any(intent == option or (fields(intent) or 0) == fields(option) for option in legal_trees)
    if not legal:
        broken("illegal_intent", not well_formed(intent))
    if body["request_resource"] not in (("integer", "0"), ("integer", "1")):
        broken("request_schema", True)
    if form:
        return (codes[0], False, False, False, 0, 0)
    return (codes[0] if codes else None, True, unsupported == 0, legal, len(facts), unsupported)


def fact_code(fact: Tree, earlier: list[Tree]) -> str | None:
    """The first rule of form a fact breaks."""
    if names(fact) != ["critical", "node", "observed_turn", "owner", "status", "value"]:
        return "fact_schema"
    body = dict(fact[1])
    integer_turn = body["observed_turn"][0] == "integer" and not body["observed_turn"][1].startswith("-")
    rules = [
        ("fact_node", body["node"][0] == "string" and body["node"] not in earlier),
        ("fact_value", body["owner"] in [("string", owner) for owner in ("BLUE", "RED", "NEUTRAL")]),
        (
            "fact_value",
            body["status"] in [("string", status) for status in ("COMPROMISED", "EXPOSED", "FORTIFIED", "SECURE")],
        ),
        ("fact_priority", body["value"] in [("integer", digit) for digit in "123"]),
        ("fact_priority", body["critical"] in (("true",), ("false",))),
        ("fact_turn", integer_turn),
    ]
    return next((code for code, holds in rules if not holds), None)


def well_formed(intent: Tree) -> bool:
    """Whether a tree spells out an action, legal or not."""
    pairs = dict(fields(intent) or [])
    kinds = {key: tree[0] for key, tree in pairs.items()}
    expected = {
        "WAIT": {"type": "string"},
        "TRANSFER": {"amount": "integer", "target": "string", "type": "string"},
    }
    targeted = {"target": "string", "type": "string"}
    kind = pairs.get("type", ("", ""))[-1]
    known = kind in ("SCAN", "PROBE", "CAPTURE", "FORTIFY", "RECOVER", *expected)
    return known and kinds == expected.get(kind, targeted) and len(names(intent)) == len(kinds)


def action_reading(text: str, displayed: tuple[Action, ...]) -> Reading:
    """What the specification says of an action reply."""
    ids = {f"A{position}" for position in range(len(displayed))}

    def code() -> str | None:
        try:
            tree = read(text)
        except NoJson:
            return "invalid_json"
        if tree[0] != "object":
            return "not_object"
        if names(tree) != ["action_id"] or tree[1][0][1][0] != "string":
            return "action_schema"
        chosen = tree[1][0][1][1]
        if chosen in ids:
            return None
        letter, digits = chosen[:1], chosen[1:]
        canonical = letter == "A" and digits and all(digit in "0123456789" for digit in digits)
        return "action_id_range" if canonical and (digits == "0" or digits[0] != "0") else "action_id"

    error = code()
    return (error, error in (None, "action_id_range"), error is None, error is None, 0, 0)
