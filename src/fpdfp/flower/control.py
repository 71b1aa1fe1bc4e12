"""What an operator does at a running SuperLink: keys, nodes, runs. In this process, without a command for each call.

Where SuperLink cannot be reached, or refuses, the calls raise ``ControlError``, which is an ``OSError``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

#: States of a run that has ended.
FINISHED = "finished"
COMPLETED = "completed"


class ControlError(OSError):
    """SuperLink cannot be reached, or refuses what was asked."""


class RunStatus(NamedTuple):
    """How a run stands: pending, starting, running, finished; then completed, failed or stopped, and why."""

    run_id: int
    status: str
    sub_status: str
    details: str
    bytes_sent: int
    bytes_received: int

    @property
    def finished(self) -> bool:
        """Whether the run has ended, well or badly."""
        return self.status == FINISHED

    @property
    def completed(self) -> bool:
        """Whether the run has ended well."""
        return self.finished and self.sub_status == COMPLETED

    def __str__(self) -> str:
        parts = [self.status, self.sub_status, self.details]
        return f"run {self.run_id}: {', '.join(part for part in parts if part)}"


class NodeStatus(NamedTuple):
    """How a node stands: registered (never seen), online, offline or unregistered."""

    node_id: int
    name: str
    status: str
    online_until: float


class Control:
    """A connection to SuperLink's control interface.

    Parameters
    ----------
    address
        ``host:port`` of SuperLink.
    authority
        The certificate of the authority that signed SuperLink's.
    """

    def __init__(self, address: str, authority: Path | str) -> None:
        from flwr.supercore.control import ControlHttpClient

        self._client: ControlHttpClient = ControlHttpClient.from_server_address(
            address, insecure=False, root_certificates=Path(authority).read_bytes(), interceptors=[]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def register(self, public_key: Path | str, name: str) -> int:
        """Make a node's public key known, under the name of its site; returns the node's id."""
        from cryptography.hazmat.primitives import serialization
        from flwr.proto.control_pb2 import RegisterNodeRequest

        key = serialization.load_ssh_public_key(Path(public_key).read_bytes())
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        with _asking(f"to register the key of {name}"):
            return int(self._client.RegisterNode(RegisterNodeRequest(public_key=pem, name=name)).node_id)

    def unregister(self, node_id: int) -> None:
        """Revoke a node's key: from now on SuperLink refuses it."""
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        with _asking(f"to revoke the key of node {node_id}"):
            self._client.UnregisterNode(UnregisterNodeRequest(node_id=node_id))

    def nodes(self) -> list[NodeStatus]:
        """All nodes that are registered, or were."""
        from flwr.proto.control_pb2 import ListNodesRequest

        with _asking("for the nodes"):
            nodes = self._client.ListNodes(ListNodesRequest()).nodes_info
        return [NodeStatus(node.node_id, node.name, node.status, node.online_until) for node in nodes]

    def run(self, run_id: int) -> RunStatus:
        """How a run stands."""
        from flwr.proto.control_pb2 import ListRunsRequest

        with _asking(f"for run {run_id}"):
            runs = self._client.ListRuns(ListRunsRequest(run_id=run_id)).run_dict
        if run_id not in runs:
            raise ValueError(f"run_id must be the id of a run that was started here, got {run_id}")
        run = runs[run_id]
        status = run.status
        return RunStatus(run_id, status.status, status.sub_status, status.details, run.bytes_sent, run.bytes_recv)

    def log(self, run_id: int, after: float = 0.0) -> tuple[str, float]:
        """What a run's ServerApp has printed after a moment, and the moment to ask for next; waits for the first."""
        from flwr.proto.control_pb2 import StreamLogsRequest

        answers = self._client.StreamLogs(StreamLogsRequest(run_id=run_id, after_timestamp=after))
        with _asking(f"for the log of run {run_id}"), contextlib.closing(answers):
            for answer in answers:
                return answer.log_output, max(after, answer.latest_timestamp)
        return "", after

    def stop(self, run_id: int) -> None:
        """End a run before its time."""
        from flwr.proto.control_pb2 import StopRunRequest

        with _asking(f"to stop run {run_id}"):
            self._client.StopRun(StopRunRequest(run_id=run_id))


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turn the errors of a call into one that says what was asked."""
    import httpx

    try:
        yield
    except httpx.HTTPStatusError as error:
        raise ControlError(f"asked SuperLink {what}: refused, {error.response.text or error}") from error
    except httpx.HTTPError as error:
        raise ControlError(f"asked SuperLink {what}: {error or type(error).__name__}") from error
