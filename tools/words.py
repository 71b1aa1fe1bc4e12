"""Count stilted phrases and long sentences in pages, docstrings and errors.

    python -m tools.words [--list]

The limits are checked by the tests: one phrase per 1,000 words, and 35 words a sentence.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Phrases that read as translated, or that hide the subject; docs/contributing says what to write instead.
PHRASES = {
    "tell or told": r"\b(?:tells?|told|telling)\b(?! (?:you|me|us|the reader))",
    "that of, those of": r"\b(?:that|those) of\b",
    "is no, are none": r"\b(?:is|are|was|were) (?:no|none)\b(?! (?:longer|more|less|greater))",
    "everyone, nobody": r"\b(?:everyone|everybody|somebody|anybody|nobody|whoever)\b",
    "in any case": r"\bin any case\b",
    "go on": r"\b(?:goes|go|went|going) on\b",
    "ask for": r"\b(?:asked|asks?|asking) for\b",
    "so many": r"\bso (?:many|long|few|much)\b",
    "says what": r"\bsays? (?:what|which|how|whether|so|of)\b",
    "as it is": r"\bas (?:it is|they are)\b[,.;)]",
    "leave out": r"\b(?:left|leave|leaves|leaving) out\b",
    "old words": r"\b(?:dear|dearer|wholly|nevertheless|thereof|beside)\b",
}
HEADLESS = re.compile(r"\A\s*(?:What|How|Which|Who|Where) [a-z]")
PATTERNS = {name: re.compile(rule) for name, rule in PHRASES.items()}
LONGEST = 35
#: Pages that programs write, and pages of tables.
WRITTEN_BY_PROGRAMS = ("docs/results/", "docs/gallery/", "docs/methods.md")


def pages() -> list[Path]:
    """Return the pages that people write."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
    return [page for page in found if not page.relative_to(ROOT).as_posix().startswith(WRITTEN_BY_PROGRAMS)]


def prose(page: Path) -> str:
    """Return the text of a page without code and tables."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"^\|.*\|$|^    .*$", "", text, flags=re.MULTILINE)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text; items of lists and headings end one."""
    for part in re.split(
        r"(?<=[.!?:;])\s+(?=[A-Z`*\[(0-9])|\n\s*\n|\n\s*(?:[*-]|\d\.) |^#+ ", text, flags=re.MULTILINE
    ):
        if part.strip():
            yield " ".join(part.split())


def docstring(text: str) -> str:
    """Return a docstring without examples and blocks in columns; names and descriptions become paragraphs."""
    text = re.sub(r"^ *>>>.*?(?=\n\s*\n|\Z)", "", text, flags=re.DOTALL | re.MULTILINE)
    paragraphs, depth, item = [list[str]()], 0, -1
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if found := re.match(r"\s*(?:[*-]|\d\.) ", line):
            item = found.end()
        if not line.strip() or indent not in (depth, item):
            paragraphs.append([])
        if line.strip():
            paragraphs[-1].append(line)
            depth, item = indent, item if indent == item or found else -1
    return "\n\n".join("\n".join(one) for one in paragraphs if not re.search(r"\S {2,}\S|^ *=+$", "\n".join(one)))


def docstrings_and_errors() -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the place and the text of each docstring and of each text of an error."""
    for path in sorted(ROOT.glob("src/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if doc := ast.get_docstring(node):
                    yield "docstrings", where, doc
            elif isinstance(node, ast.Raise) and node.exc is not None:
                for part in ast.walk(node.exc):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield "errors", where, part.value


def count() -> tuple[dict[str, float], list[str]]:
    """Return phrases per 1,000 words by kind of text, and every place that has one."""
    hits, words, places = Counter[str](), Counter[str](), list[str]()
    texts = [("pages", page.relative_to(ROOT).as_posix(), prose(page)) for page in pages()]
    for kind, where, text in (*texts, *docstrings_and_errors()):
        words[kind] += len(text.split())
        patterns = {**PATTERNS, "headless": HEADLESS} if kind == "docstrings" else PATTERNS
        for name, pattern in patterns.items():
            for found in pattern.finditer(text):
                hits[kind] += 1
                around = " ".join(text[max(0, found.start() - 30) : found.end() + 30].split())
                places.append(f"{where}: {name}: … {around} …")
    return {kind: 1000 * hits[kind] / max(words[kind], 1) for kind in words}, places


def long_sentences() -> list[str]:
    """Return the sentences of pages and docstrings that have too many words, with their places."""
    texts = [(page.relative_to(ROOT).as_posix(), prose(page)) for page in pages()]
    texts += [(where, docstring(text)) for kind, where, text in docstrings_and_errors() if kind == "docstrings"]
    return [
        f"{where}: {len(one.split())} words: {one}"
        for where, text in texts
        for one in sentences(text)
        if len(one.split()) > LONGEST
    ]


def main() -> None:
    """Print the counts, and with ``--list`` every place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every place")
    rates, places = count()
    long = long_sentences()
    if parser.parse_args().list:
        print(*places, *long, sep="\n")
    for kind, rate in rates.items():
        print(f"{kind:12}{rate:6.1f} phrases per 1,000 words")
    print(f"{len(long)} sentences of more than {LONGEST} words")


if __name__ == "__main__":
    main()
