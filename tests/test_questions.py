"""Everything that a site can be asked declares what it reveals, and receives no more of the data than that."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import Informations
from fpdfp.cohorts.question import PUBLIC, ROWS, Offer, Question, Reveals, question, questions, reveals
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.serialization import constructor_hints
from fpdfp.cohorts.site import Site
from fpdfp.errors import MessageError, Refusal
from fpdfp.federation.table import SiteTable, TableView

LOSSES = fpdfp.losses.Logistic(np.eye(4), [1.0, -1.0, 1.0, -1.0])


@pytest.mark.parametrize("kind", questions().values(), ids=list(questions()))
def test_every_question_declares_each_of_its_fields(kind: type[Question]) -> None:
    assert isinstance(kind.__dict__["reveals"], Reveals)
    assert sorted(kind.reveals.fields) == sorted(constructor_hints(kind))
    assert questions()[kind.name] is kind


def test_rows_are_handed_to_these_questions_alone() -> None:
    assert {name for name, kind in questions().items() if ROWS in kind.reveals.uses} == {"held_scores"}


@pytest.mark.parametrize("kind", questions().values(), ids=list(questions()))
def test_operations_that_are_not_declared_are_refused(kind: type[Question]) -> None:
    view: Any = TableView(SiteTable.read(pd.DataFrame({"age": [1.0, 2.0]})), None, "")
    data: Any = {"losses": LOSSES, "table": view, "run": Site(LOSSES)}[kind.reveals.of]
    offer = Offer(data, kind.reveals.uses)
    names = {name for one in type(data).__mro__ for name in vars(one)} | {"_rows", "_matrix", "table", "losses"}
    for name in names - PUBLIC - kind.reveals.uses - set(dir(object)):
        if not name.startswith("__"):
            with pytest.raises(Refusal, match=name):
                getattr(offer, name)


def test_losses_of_fewer_features_are_behind_the_same_door() -> None:
    few: Any = Offer(LOSSES, frozenset({"restrict", "values"})).restrict(np.array([1]))
    assert few.values(np.zeros(1), np.array([0])) == pytest.approx(np.log(2.0))
    with pytest.raises(Refusal, match="gradients"):
        few.gradients(np.zeros(1), np.array([0]))


@dataclasses.dataclass(frozen=True)
class Leak(Question):
    """A question that is not registered, and uses what it does not declare."""

    x: Any

    def answer(self, data: Any) -> Any:
        return data._rows


def test_a_question_that_is_not_registered_is_not_sent_and_not_built() -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        parcels.dump(Leak(np.zeros(4)))
    with pytest.raises(MessageError, match=r"is made of .* not of 'leak'"):
        Request.read({"leak": {"x": np.zeros(4)}})
    with pytest.raises(MessageError, match="must have a question"):
        Request.read({})


def test_registration_refuses_what_is_not_declared() -> None:
    with pytest.raises(TypeError, match="Leak must declare what it reveals"):
        question("leak")(Leak)
    made: Any = dataclasses.dataclass(frozen=True)(
        type("Some", (Question,), {"__annotations__": {"x": int, "y": int}, "reveals": reveals(points="x")})
    )
    with pytest.raises(TypeError, match=r"each of its fields once: \['x', 'y'\], got \('x',\)"):
        question("some")(made)
    with pytest.raises(TypeError, match="frozen dataclass derived from Question"):
        question("some")(object)  # type: ignore[type-var]


def test_fields_that_a_question_does_not_have_are_refused() -> None:
    tree = Request((Informations(np.zeros(4)),)).write(parcels.dump)
    assert list(tree) == ["information"]
    assert Request.read(tree).questions[0].points_at((4,)) is not None
    tree["information"]["more"] = 1
    with pytest.raises(MessageError, match="is made of"):
        Request.read(tree)


def test_points_of_another_shape_are_refused() -> None:
    found = Informations(np.ones(4)).points_at((4,))
    assert found is not None
    assert found.x.tolist() == [[1.0] * 4]
    assert found.held.tolist() == [-1]
    with pytest.raises(MessageError, match="points of shape"):
        Informations(np.ones(3)).points_at((4,))
