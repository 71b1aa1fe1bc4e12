"""TensorBoard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fpdfp.engines import Result, Run
from fpdfp.loggers.base import Logger
from fpdfp.loggers.described import outcome


class TensorBoard(Logger):
    """Log a run as event files for TensorBoard: ``fpdfp.solve(…, callbacks=[TensorBoard("logs/first")])``.

    Every column of the history is a scalar against rounds, hyper-parameters are in the HParams tab, and the certificate
    is under ``end``. TensorBoard keeps scalars in single precision. Events are written to disk at every evaluation.

    A resumed run continues in its folder, and rows that were logged after the checkpoint are replaced. A new run in the
    folder of another one replaces it.

    Parameters
    ----------
    folder
        The folder for event files, one for each run. Give the parent folder to ``tensorboard --logdir``.

    Examples
    --------
    >>> TensorBoard("logs/first")
    TensorBoard('logs/first')
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        if self.folder.is_file():
            raise ValueError(f"folder must be a folder, got the file {self.folder}")
        self._writer: Any = None

    def __repr__(self) -> str:
        return f"TensorBoard({str(self.folder)!r})"

    def open(self, run: Run, values: dict[str, str | int | float]) -> int:
        try:
            from tensorboard.compat.proto.event_pb2 import SessionLog
            from tensorboard.plugins.hparams import summary_v2 as hparams
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ImportError(f"logging to TensorBoard needs its package: pip install tensorboard ({error})") from error
        known = run.history.rows if self._has_events() else 0
        self.folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(self.folder))
        # A reader forgets all that other sessions have logged from this step on.
        first = run.history["round"][known - 1] + 1 if known else 0
        self._add(int(first), session_log=SessionLog(status=SessionLog.START))
        config = hparams.hparams_config_pb(hparams=[], metrics=[hparams.Metric("objective", display_name="objective")])
        self._add(int(first), summary=config)
        self._add(int(first), summary=hparams.hparams_pb(values, trial_id=self.folder.name))
        self._writer.flush()
        return known

    def _has_events(self) -> bool:
        return any(self.folder.glob("events.out.tfevents.*"))

    def log(self, row: dict[str, float]) -> None:
        self._scalars({name: value for name, value in row.items() if name != "round"}, int(row["round"]))
        self._writer.flush()

    def close(self, result: Result) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._scalars({f"end/{name}": value for name, value in outcome(result).items()}, result.rounds)
        # Four spaces keep the lines of the text as they are.
        text = "\n".join(f"    {line}" for line in str(result).splitlines())
        self._add(result.rounds, summary=text_pb("result", text))
        self._writer.close()

    def abandon(self, error: BaseException) -> None:
        self._writer.close()

    def _scalars(self, values: dict[str, float], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._add(step, summary=Summary(value=[Summary.Value(tag=name, simple_value=values[name]) for name in values]))

    def _add(self, step: int, **what: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=time.time(), step=step, **what))
