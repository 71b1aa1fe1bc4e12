"""The data sets that are known by name, with their sources and checksums."""

from __future__ import annotations

from dataclasses import dataclass

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_ADULT = (
    "B. Becker and R. Kohavi, Adult, UCI Machine Learning Repository (1996), as prepared by J. Platt, "
    '"Fast training of support vector machines using sequential minimal optimization" (1999), '
    "and distributed by C.-C. Chang and C.-J. Lin, LIBSVM"
)
_COVTYPE = (
    "J. A. Blackard, Covertype, UCI Machine Learning Repository (1998), copyright Jock A. Blackard and Colorado State "
    'University; two classes after R. Collobert, S. Bengio and Y. Bengio, "A parallel mixture of SVMs for very large '
    'scale problems" (2002); distributed by C.-C. Chang and C.-J. Lin, LIBSVM'
)


@dataclass(frozen=True)
class Registered:
    """A LIBSVM file that is known by name.

    Attributes
    ----------
    name
        The name for ``fpdfp.datasets.load``.
    file
        The name of the unpacked file.
    url
        Where it is fetched from.
    sha256
        The digest of the unpacked text.
    rows, features
        The shape of X.
    positive
        The label in the file that becomes +1; every other one becomes −1.
    citation
        The source to cite.
    """

    name: str
    file: str
    url: str
    sha256: str
    rows: int
    features: int
    positive: float
    citation: str


REGISTRY: dict[str, Registered] = {
    entry.name: entry
    for entry in (
        Registered(
            name="a9a",
            file="a9a",
            url=f"{_LIBSVM}/a9a",
            sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
            rows=32_561,
            features=123,
            positive=1.0,
            citation=_ADULT,
        ),
        Registered(
            name="a9a.t",
            file="a9a.t",
            url=f"{_LIBSVM}/a9a.t",
            sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
            rows=16_281,
            features=123,
            positive=1.0,
            citation=_ADULT,
        ),
        Registered(
            name="covtype",
            file="covtype.libsvm.binary.scale",
            url=f"{_LIBSVM}/covtype.libsvm.binary.scale.bz2",
            sha256="05de16391cecc69f170b1a235453e5183629c1b0e95a68d71938ebbcb05d3150",
            rows=581_012,
            features=54,
            positive=2.0,
            citation=_COVTYPE,
        ),
    )
}
