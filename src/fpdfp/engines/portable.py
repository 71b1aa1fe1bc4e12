"""Requests as they go over a network: jobs and maps without pickles."""

from __future__ import annotations

import hashlib
from typing import Any

from fpdfp.engines import spec
from fpdfp.engines.job import Job
from fpdfp.engines.parcel import pack


def key_of(job: Job, run_id: str) -> str:
    """Return what tells a job of a run from others: the same for a server that was restarted."""
    return hashlib.sha256(run_id.encode() + pack(spec.dump(job))).hexdigest()[:32]


def request_of(tree: Any) -> dict[str, Any]:
    """Return a request with its jobs and maps made of what was sent."""
    request: dict[str, Any] = spec.load(tree, dict)
    return request


def job_of(tree: Any) -> Job:
    """Return the job that was sent."""
    job: Job = spec.load(tree, Job)
    return job
