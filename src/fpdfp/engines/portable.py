"""Requests as they go over a network: jobs and maps without pickles."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from fpdfp.engines import spec
from fpdfp.engines.parcel import pack
from fpdfp.engines.site import Job
from fpdfp.errors import MessageError
from fpdfp.methods.base import Algorithm


def portable(value: Any) -> Any:
    """Return a job or a map as a tree for a parcel."""
    if isinstance(value, Job):
        return {name: spec.dump(one) for name, one in value._asdict().items()}
    return spec.dump(value)


def key_of(job: Job, run_id: str) -> str:
    """Return what tells a job of a run from others: the same for a server that was restarted."""
    return hashlib.sha256(run_id.encode() + pack(portable(job))).hexdigest()[:32]


def request_of(tree: Any) -> dict[str, Any]:
    """Return a request with its job and map made of what was sent."""
    if not isinstance(tree, dict):
        raise MessageError("a request must be a dictionary of what is asked")
    request = dict(tree)
    for name in ("gather", "constants"):
        if isinstance(request.get(name), dict):
            request[name] = _made(request[name])
    return _made(request)


def job_of(tree: Any) -> Job:
    """Return the job that was sent."""
    if not isinstance(tree, dict) or set(tree) != set(Job._fields):
        raise MessageError("a request has a job that makes no sense")
    job = Job(**{name: spec.load(one) for name, one in tree.items()})
    if not isinstance(job.task, Algorithm):
        return job
    model = job.task.model
    try:
        # Looks at shapes and weights once more.
        model = model._replace(penalty=model.penalty.bind(model.linop.out_shape))
    except (ValueError, TypeError, AttributeError) as error:
        raise MessageError(f"a request has a job that makes no sense: {error}") from error
    return job._replace(task=dataclasses.replace(job.task, model=model))


def _made(ask: dict[str, Any]) -> dict[str, Any]:
    made = dict(ask)
    if "job" in ask:
        made["job"] = job_of(ask["job"])
    for name in ("factor", "coordinates"):
        if name in ask:
            made[name] = spec.load(ask[name])
    return made
