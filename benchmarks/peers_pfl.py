"""Peer for the round benchmark: federated averaging simulated with Apple's ``pfl``.

One round: ``n`` clients drawn uniformly without replacement; each takes one SGD step
of the mean logistic loss (no intercept) on ``batch_size`` of its rows, drawn without
replacement, from the server model; the server adds the mean of the model differences
(central SGD, learning rate 1). No privacy, no evaluation in the timed rounds.

How pfl is set up: ``FederatedAveraging`` on a ``SimulatedBackend``, one process, CPU,
float32 (pfl's own precision), one torch thread. Two choices make it faster than a
first attempt would be: a ``FederatedDatasetBase`` subclass draws the whole cohort
(the stock ``FederatedDataset`` reseeds NumPy for every client and its random sampler
draws with replacement), and each client's data set holds only its mini-batch.

A hand-written optimizer in place of torch's would be somewhat faster; it is not used, since the peer would then be
partly ours.

Tried with pfl 0.6.0 and torch 2.13.0 (CPU) on Python 3.11.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_WARM_UP = 20


def rounds_per_second(
    X: np.ndarray,
    y: np.ndarray,
    clients: np.ndarray,
    *,
    n: int,
    batch_size: int,
    step: float,
    rounds: int,
    seed: int,
) -> float:
    """Return how many rounds pfl runs per second, timed over ``rounds`` rounds."""
    return _run(X, y, clients, n, batch_size, step, rounds, seed)[0]


def _run(
    X: np.ndarray,
    y: np.ndarray,
    clients: np.ndarray,
    n: int,
    batch_size: int,
    step: float,
    rounds: int,
    seed: int,
    warm_up: int = _WARM_UP,
) -> tuple[float, np.ndarray]:
    """Run ``warm_up + rounds`` rounds from zero; return the rate and the final model."""
    import asyncio
    import logging
    import os
    import time

    import torch

    # pfl.model.pytorch first: importing it selects torch as pfl's framework.
    from pfl.model.pytorch import PyTorchModel  # isort: skip
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDatasetBase
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNTrainHyperParams

    class Logistic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(X.shape[1]))

        def loss(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.softplus(-labels * (features @ self.w)).mean()

        def metrics(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
            return {}  # pfl evaluates in its very first round, which is a warm-up round

    data = [
        (
            torch.as_tensor(X[clients == c], dtype=torch.float32),
            torch.as_tensor(y[clients == c], dtype=torch.float32),
        )
        for c in np.unique(clients)
    ]
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)

    class Clients(FederatedDatasetBase):
        def get_cohort(self, cohort_size: int) -> Any:
            for c in rng.choice(len(data), cohort_size, replace=False):
                features, labels = data[c]
                rows = torch.randperm(len(labels), generator=generator)[:batch_size]
                yield PyTorchTensorDataset((features[rows], labels[rows])), 0

        def __next__(self) -> Any:
            return next(iter(self.get_cohort(1)))

    class Clock(TrainingProcessCallback):
        start = 0.0

        def on_train_begin(self, *, model: Any) -> Any:
            self.start = time.perf_counter()
            return super().on_train_begin(model=model)

        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            if central_iteration == warm_up - 1:
                self.start = time.perf_counter()
            return super().after_central_iteration(aggregate_metrics, model, central_iteration=central_iteration)

    logging.getLogger("pfl").setLevel(logging.ERROR)
    device_before = os.environ.get("PFL_PYTORCH_DEVICE")
    threads = torch.get_num_threads()
    loop = asyncio.new_event_loop()  # pfl asks asyncio for the current loop
    asyncio.set_event_loop(loop)
    try:
        os.environ["PFL_PYTORCH_DEVICE"] = "cpu"
        torch.set_num_threads(1)  # the tensors are far too small to share out
        module = Logistic()
        optimizer = torch.optim.SGD(module.parameters(), lr=step)
        model = PyTorchModel(
            module,
            # Plain SGD keeps no state, so one optimizer serves every client.
            local_optimizer_create=lambda parameters, lr: optimizer,
            central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
        )
        federated = Clients()
        clock = Clock()
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=warm_up + rounds,
                evaluation_frequency=warm_up + rounds + 1,  # round 0 only
                train_cohort_size=n,
                val_cohort_size=None,
            ),
            SimulatedBackend(training_data=federated, val_data=federated),
            model,
            NNTrainHyperParams(local_num_epochs=1, local_learning_rate=step, local_batch_size=None),
            callbacks=[clock],
            send_metrics_to_platform=False,  # else it prints the metrics of every round
        )
        seconds = time.perf_counter() - clock.start
    finally:
        torch.set_num_threads(threads)
        asyncio.set_event_loop(None)
        loop.close()
        if device_before is None:
            os.environ.pop("PFL_PYTORCH_DEVICE", None)
        else:
            os.environ["PFL_PYTORCH_DEVICE"] = device_before
    return rounds / seconds, module.w.detach().numpy().copy()
