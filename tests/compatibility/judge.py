"""Lays our answers beside RocketMQ's, line by line: equal, explained by a row, or wrong."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Line = dict[str, Any]
Key = tuple[Any, ...]

KEY_FIELDS = {
    "recovery": (),
    "store": (),
    "frame": ("phyOffset",),
    "queue": ("topic", "queueId"),
    "pull": ("topic", "queueId", "offset", "maxNums"),
    "message": ("topic", "queueId", "at"),
    "filtered": ("topic", "queueId", "tagsCode"),
    "index": ("number",),
}
"""What a line of each kind is about; its other fields are the answer."""

SHOWN = 6


@dataclass(frozen=True, slots=True)
class Pair:
    """One question with both answers; None where a side has no such line."""

    kind: str
    key: Key
    theirs: Line | None
    ours: Line | None

    def fields(self) -> set[str]:
        """The names of the fields that differ."""
        theirs, ours = self.theirs or {}, self.ours or {}
        return {name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)}

    def __str__(self) -> str:
        if self.theirs is None or self.ours is None:
            return f"{self.kind} {self.key}: RocketMQ {self.theirs}, here {self.ours}"
        differing = sorted(self.fields())
        theirs = {name: self.theirs.get(name) for name in differing}
        ours = {name: self.ours.get(name) for name in differing}
        return f"{self.kind} {self.key}: RocketMQ {theirs}, here {ours}"


Explanation = Callable[[Pair], bool]
"""True when a row explains that the two answers differ."""


@dataclass(slots=True)
class Verdict:
    compared: Counter[str] = field(default_factory=Counter)
    rows_met: Counter[str] = field(default_factory=Counter)
    unexplained: list[Pair] = field(default_factory=list)

    def complaint(self) -> str:
        """Empty when nothing is wrong; otherwise counts and the first differences of each kind."""
        counts = Counter(pair.kind for pair in self.unexplained)
        lines = [f"unexplained differences: {dict(counts)}"] if counts else []
        for kind in counts:
            pairs = [pair for pair in self.unexplained if pair.kind == kind]
            lines += [f"  {pair}" for pair in pairs[:SHOWN]]
        return "\n".join(lines)


def judge(
    theirs: Iterable[Line],
    ours: Iterable[Line],
    kinds: Iterable[str],
    explanations: Mapping[str, Explanation],
) -> Verdict:
    """Compare the lines of the named kinds, their order included."""
    verdict = Verdict()
    kinds = set(kinds)
    left, right = _by_question(theirs, kinds), _by_question(ours, kinds)
    for question in dict.fromkeys([*left, *right]):
        pair = Pair(question[0], question[1:], left.get(question), right.get(question))
        verdict.compared[pair.kind] += 1
        if pair.theirs == pair.ours:
            continue
        row = next((name for name, explains in explanations.items() if explains(pair)), None)
        if row is None:
            verdict.unexplained.append(pair)
        else:
            verdict.rows_met[row] += 1
    both = [question for question in left if question in right]
    if both != [question for question in right if question in left]:
        misplaced = next(
            one
            for one, other in zip(both, (q for q in right if q in left), strict=True)
            if one != other
        )
        verdict.unexplained.append(Pair("order", misplaced, None, None))
    return verdict


def _by_question(lines: Iterable[Line], kinds: set[str]) -> dict[Key, Line]:
    questions: dict[Key, Line] = {}
    for line in lines:
        if line["kind"] in kinds:
            question = (line["kind"], *(line[name] for name in KEY_FIELDS[line["kind"]]))
            assert question not in questions, f"asked twice: {question}"
            questions[question] = line
    return questions
