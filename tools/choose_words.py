"""Choose the words of the canary text and write them to kvcanary/canary/words/.

Nine alphabets of 256 words, each of one word length, and one list of further words:

- ``slot_a.txt`` to ``slot_f.txt`` fill the slots of the canary sentences. They hold nouns and
  adjectives that read well before a noun ("the {a} crates").
- ``name_a.txt`` to ``name_c.txt`` make tenants' names of three words. They hold nouns.
- ``private.txt`` holds all other good words, to be dealt to the tenants.

Over the whole selection no word occurs twice and no two words share a lemma (so never both a
singular and its plural). In the nine alphabets no two words of one length differ in one letter.

What a word needs, in this order:

1. It is in the file given as argument: words that are a single token, with a leading space, in
   each mainstream vocabulary. One word a line.
2. It is real: in SCOWL up to size 60 and in Debian's American word list, with a noun or an
   adjective in WordNet, and not inflected.
3. It is harmless: in no list of offensive words, and not refused by a person, who read every
   candidate (tools/rejected_words.txt). That file also names the inflected forms that a person let
   in, the words that are dull or frequent and so come last, and those that make a poor name. Nor
   does it stand in the sentences around the slots (kvcanary/canary/verses.py), which all share.
4. Its place is the cheapest one over all: an integer program prefers rarer words, and things,
   plants, animals, places and people for names.

To run it again, in a virtual environment of its own, on Python 3.11::

    apt-get install wamerican=2020.12.07-2 scowl=2020.12.07-2 wordnet-base=1:3.0-37
    pip install better-profanity==0.7.0 lemminflect==0.2.3 scipy==1.17.1 wordfreq==3.1.1
    python tools/choose_words.py single_token_words.txt

The same versions give the same files. ``--candidates`` prints every word that may be chosen, for a
person to read: a new list of single-token words brings in words that nobody has judged yet.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
import runpy
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "kvcanary" / "canary" / "words"
JUDGEMENTS = Path(__file__).resolve().with_name("rejected_words.txt")
AMERICAN = Path("/usr/share/dict/american-english")
SCOWL = Path("/usr/share/dict/scowl")
WORDNET = Path("/usr/share/wordnet")

SIZE = 256
LENGTHS = {
    "slot_a": 5,
    "slot_b": 6,
    "slot_c": 6,
    "slot_d": 7,
    "slot_e": 8,
    "slot_f": 9,
    "name_a": 7,
    "name_b": 5,
    "name_c": 8,
}
SHORTEST, LONGEST = 4, 9
SCOWL_SIZES = (10, 20, 35, 40, 50, 55, 60)
# WordNet's numbers of the kinds of nouns.
CONCRETE = frozenset({5, 6, 13, 17, 19, 20, 27})  # animals, artifacts, food, ..., substances
FAIR_NAMES = frozenset({11, 14, 15, 18, 23, 25, 28})  # events, groups, places, people, ..., times
ARTIFACT = 6
FREQUENT = 5.5  # Zipf: a word that occurs more than 300 times in a million
PRIVATE_FREQUENT, PRIVATE_RELUCTANT = 5.2, 4.7


@dataclasses.dataclass(frozen=True)
class Word:
    text: str
    zipf: float
    lemmas: frozenset[str]
    inflected: bool
    noun: int | None  # WordNet's kind of its first sense as a noun
    modifier: bool  # may stand before a noun
    adjective: bool  # is an adjective more often than a noun

    def patterns(self) -> Iterator[str]:
        """What it shares with each word that differs from it in one letter."""
        for at in range(len(self.text)):
            yield f"{self.text[:at]}.{self.text[at + 1 :]}"


@dataclasses.dataclass(frozen=True)
class Judgements:
    rejected: frozenset[str]
    reluctant: frozenset[str]
    inflected: frozenset[str]
    unnamed: frozenset[str]

    @classmethod
    def read(cls, path: Path) -> Judgements:
        sections: dict[str, set[str]] = {field.name: set() for field in dataclasses.fields(cls)}
        into: set[str] = set()
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith("["):
                into = sections[line.strip("[]")]
            elif not line.startswith("#"):
                into.update(line.split())
        return cls(**{name: frozenset(words) for name, words in sections.items()})


def library(name: str) -> Any:
    """A library that only this tool needs and that may come without types."""
    return importlib.import_module(name)


def scowl_words() -> set[str]:
    files = (
        SCOWL / f"{variety}-words.{size}"
        for size in SCOWL_SIZES
        for variety in ("english", "american")
    )
    return {
        word
        for file in files
        if file.exists()
        for word in file.read_text(encoding="latin-1").split()
    }


def offensive_words() -> set[str]:
    package = Path(library("better_profanity").__file__).parent
    return set((package / "profanity_wordlist.txt").read_text(encoding="utf-8").splitlines())


def wordnet_lines(name: str) -> Iterator[list[str]]:
    for line in (WORDNET / name).read_text(encoding="latin-1").splitlines():
        if not line.startswith("  "):  # the licence
            yield line.split()


def wordnet_kinds() -> dict[str, dict[str, int]]:
    """Word to part of speech to the kind of the first sense."""
    kinds: dict[str, dict[str, int]] = defaultdict(dict)
    for part in ("noun", "adj"):
        kind = {fields[0]: int(fields[1]) for fields in wordnet_lines(f"data.{part}")}
        for fields in wordnet_lines(f"index.{part}"):
            kinds[fields[0]][part] = kind[fields[-int(fields[2])]]
    return kinds


def wordnet_uses() -> Counter[tuple[str, str]]:
    """How often WordNet's corpora use a word as a noun and as an adjective."""
    uses: Counter[tuple[str, str]] = Counter()
    parts = {"1": "noun", "3": "adj", "5": "adj"}
    for key, _, times in wordnet_lines("cntlist.rev"):
        word, _, sense = key.partition("%")
        if sense[0] in parts:
            uses[word, parts[sense[0]]] += int(times)
    return uses


def real_words(texts: Iterable[str]) -> list[Word]:
    lemminflect, wordfreq = library("lemminflect"), library("wordfreq")
    american = set(AMERICAN.read_text(encoding="utf-8").split())
    known = american & scowl_words()
    kinds, uses = wordnet_kinds(), wordnet_uses()
    words = []
    for text in sorted(set(texts)):
        if text not in known or not SHORTEST <= len(text) <= LONGEST:
            continue
        by_part: Mapping[str, Sequence[str]] = lemminflect.getAllLemmas(text)
        kind = kinds.get(text, {})
        inflected = any(text not in lemmas for lemmas in by_part.values())
        words.append(
            Word(
                text=text,
                zipf=float(wordfreq.zipf_frequency(text, "en")),
                lemmas=frozenset({text}.union(*by_part.values())),
                inflected=inflected or not kind,
                noun=ARTIFACT if inflected and text.endswith("s") else kind.get("noun"),
                modifier=bool(kind) or text.endswith(("ed", "en", "ing", "s")),
                adjective="noun" not in kind or uses[text, "adj"] > uses[text, "noun"],
            )
        )
    return words


def place_cost(word: Word, place: str, judged: Judgements) -> float | None:
    """What it costs to have the word there; None where it must not be."""
    cost = max(0.0, word.zipf - 4.0) + (4.0 if word.text in judged.reluctant else 0.0)
    if place.startswith("slot"):
        return cost if word.modifier else None
    if word.noun is None:
        return None
    kind = 0.0 if word.noun in CONCRETE else 2.0 if word.noun in FAIR_NAMES else 5.0
    unfit = (6.0 if word.adjective else 0.0) + (7.0 if word.text in judged.unnamed else 0.0)
    return 2 * cost + kind + unfit


def assign(words: Sequence[Word], judged: Judgements) -> dict[str, list[str]]:
    """The nine alphabets, of least cost in all."""
    numpy, optimize, sparse = (
        library(name) for name in ("numpy", "scipy.optimize", "scipy.sparse")
    )
    choices = [
        (word, place, cost)
        for word in words
        for place, length in LENGTHS.items()
        if len(word.text) == length and (cost := place_cost(word, place, judged)) is not None
    ]
    # At most one word of a lemma, and at most one of those that differ only in a given letter;
    # both together also keep a word from being chosen twice.
    at_most_one: dict[str, set[int]] = defaultdict(set)
    exactly: dict[str, set[int]] = defaultdict(set)
    for index, (word, place, _) in enumerate(choices):
        exactly[place].add(index)
        for constraint in (*word.patterns(), *word.lemmas):
            at_most_one[constraint].add(index)
    rows = [*at_most_one.values(), *exactly.values()]
    row_of = [row for row, members in enumerate(rows) for _ in members]
    column_of = [index for members in rows for index in sorted(members)]
    matrix = sparse.csr_matrix(
        (numpy.ones(len(row_of)), (row_of, column_of)), shape=(len(rows), len(choices))
    )
    least = [0] * len(at_most_one) + [SIZE] * len(exactly)
    most = [1] * len(at_most_one) + [SIZE] * len(exactly)
    # The last part of a cost breaks ties.
    result = optimize.milp(
        c=[cost + index * 1e-7 for index, (_, _, cost) in enumerate(choices)],
        constraints=optimize.LinearConstraint(matrix, least, most),
        integrality=numpy.ones(len(choices)),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
    )
    if not result.success:
        raise SystemExit(f"no selection meets all constraints: {result.message}")
    places: dict[str, list[str]] = {place: [] for place in LENGTHS}
    for chosen, (word, place, _) in zip(result.x, choices, strict=True):
        if chosen > 0.5:
            places[place].append(word.text)
    return places


def leftovers(words: Sequence[Word], judged: Judgements, taken: set[str]) -> list[str]:
    """Further words that share no lemma with those taken, nor with each other."""
    used = {lemma for word in words if word.text in taken for lemma in word.lemmas}
    chosen = []
    for word in sorted(words, key=lambda word: (word.inflected, -len(word.text), word.text)):
        reluctant = word.text in judged.reluctant
        frequent = word.zipf > (PRIVATE_RELUCTANT if reluctant else PRIVATE_FREQUENT)
        if not frequent and not word.lemmas & used:
            used |= word.lemmas
            chosen.append(word.text)
    return chosen


def sentence_words() -> set[str]:
    """The words of the canary sentences themselves, which tell nothing about whose text it is."""
    sentences = runpy.run_path(str(ROOT / "kvcanary" / "canary" / "verses.py"))
    texts = [text for name, value in sentences.items() if name.isupper() for text in _texts(value)]
    return set(re.findall("[a-z]+", " ".join(texts).lower()))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        yield from value.values() if isinstance(value, dict) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("single_token_words", type=Path)
    parser.add_argument("--candidates", action="store_true", help="print what may be chosen")
    arguments = parser.parse_args()
    judged = Judgements.read(JUDGEMENTS)
    unusable = offensive_words() | sentence_words() | judged.rejected
    words = [
        word
        for word in real_words(arguments.single_token_words.read_text(encoding="ascii").split())
        if word.text not in unusable
        and (not word.inflected or word.text in judged.inflected)
        and word.zipf <= FREQUENT
    ]
    if arguments.candidates:
        print("\n".join(word.text for word in words))
        return
    places = assign(words, judged)
    places["private"] = leftovers(
        words, judged, {text for some in places.values() for text in some}
    )
    WORDS.mkdir(parents=True, exist_ok=True)
    for place, texts in places.items():
        (WORDS / f"{place}.txt").write_text("\n".join(sorted(texts)) + "\n", encoding="ascii")
        print(f"{place}: {len(texts)} words of {sum(map(len, texts)) / len(texts):.2f} letters")


if __name__ == "__main__":
    main()
