"""Callbacks that write runs to TensorBoard and MLflow."""

from fpdfp.loggers.base import Logger
from fpdfp.loggers.mlflow import MLflow
from fpdfp.loggers.tensorboard import TensorBoard

__all__ = ["Logger", "MLflow", "TensorBoard"]
