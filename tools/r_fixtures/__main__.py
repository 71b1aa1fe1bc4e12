"""Write tests/data/r/*.json anew: the data sets, and what R says of them.

    python -m tools.r_fixtures            ask R and write all files
    python -m tools.r_fixtures glm        one of them: glm, survival, glmnet, cv, cv_classes, study, likelihood, public,
                                          paths, variables

Debian's packages are r-base-core, r-cran-mass, r-cran-survival, r-cran-glmnet, r-cran-nnet, r-cran-nlme,
r-cran-quantreg, r-cran-metafor, r-cran-brglm2, r-cran-sandwich and r-cran-survey.
The tests read the files and need no R.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tools.r_fixtures import cv, cv_classes, glm, glmnet, likelihood, paths, public, r, study, survival, variables
from tools.r_fixtures.data import build_all

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "r"
TOPICS = {
    "glm": glm, "survival": survival, "glmnet": glmnet, "cv": cv, "cv_classes": cv_classes, "study": study,
    "likelihood": likelihood, "public": public, "paths": paths,
    "variables": variables,
}  # fmt: skip


def main() -> None:
    """Ask R and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topic", nargs="*", choices=[*TOPICS, []], help="files to write; all when none is given")
    FOLDER.mkdir(parents=True, exist_ok=True)
    data = build_all()
    write("data", data)
    for topic in parser.parse_args().topic or TOPICS:
        cases, known = TOPICS[topic].list_cases()
        answers = r.ask(data, TOPICS[topic].PRELUDE, cases)
        write(topic, {"made by": r.version(), "cases": {name: known[name] | {"r": answers[name]} for name in cases}})


def write(name: str, content: dict[str, Any]) -> None:
    """Write one file, a line for each case or data set."""
    lines = ",\n".join(f"{json.dumps(key)}: {dump(value)}" for key, value in content.items())
    path = FOLDER / f"{name}.json"
    path.write_text(f"{{\n{lines}\n}}\n")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def dump(value: Any) -> str:
    """Return JSON; the cases of a file, and the columns of a data set, one on a line."""
    if isinstance(value, dict):
        inside = ",\n".join(
            f" {json.dumps(key)}: {json.dumps(one, separators=(',', ':'))}" for key, one in value.items()
        )
        return f"{{\n{inside}\n}}"
    return json.dumps(value)


main()
