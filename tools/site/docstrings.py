"""Docstrings as Markdown: the roles and formulas of reStructuredText that this package's docstrings have."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe
from latex2mathml.converter import convert

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
INLINE = re.compile(r":math:`([^`]+)`")
#: A formula includes the following lines that are indented deeper than its first.
BLOCK = re.compile(r"^([ ]*)\.\. math::[ ]*(.*(?:\n\1[ ]+\S.*)*)", re.MULTILINE)
LITERAL = re.compile(r"^([ ]*)::$|::$", re.MULTILINE)
#: An entry of several parameters, and the indented lines below it.
GROUPED = re.compile(r"^(\*{0,2}\w+(?:,[ \n]\*{0,2}\w+)+)( :.*)?\n((?:[ ]+\S.*\n?|\n(?=[ ]+\S))+)", re.MULTILINE)


def formula(latex: str, display: str) -> str:
    """Return a formula as MathML, which browsers draw by themselves: no script, no fonts from elsewhere."""
    one_line = " ".join(latex.split()).replace(r"\mathrm{", r"\operatorname{")
    return convert(one_line, display=display)


def markdown(text: str) -> str:
    """Return a docstring's text as Markdown.

    >>> markdown("Of :class:`~fpdfp.QSGD`, as follows::")
    'Of `fpdfp.QSGD`, as follows:'
    """
    text = BLOCK.sub(lambda found: f"{found[1]}<p>{formula(found[2], 'block')}</p>", text)
    text = INLINE.sub(lambda found: formula(found[1], "inline"), text)
    text = ROLE.sub(r"`\1`", text)
    return LITERAL.sub(lambda found: "" if found[1] is not None else ":", text)


def separate(text: str) -> str:
    r"""Return a docstring with one entry for each parameter: griffe gives grouped ones the default of the first.

    >>> separate("Parameters\n----------\na, b : int\n    Numbers.").splitlines()[2:]
    ['a : int', '    Numbers.', 'b : int', '    Numbers.']
    """
    before, title, entries = text.partition("Parameters\n----------\n")

    def each(found: re.Match[str]) -> str:
        return "".join(f"{name}{found[2] or ''}\n{found[3].rstrip()}\n" for name in re.split(r",[ \n]", found[1]))

    return before + title + GROUPED.sub(each, entries)


class ReStructuredText(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object that was found."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(separate(textwrap.dedent(obj.docstring.value)))
