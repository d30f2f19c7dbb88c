"""What `harbor job resume` would do with a job directory, told without touching it."""

from console.bench.resume.model import DEFAULT_FILTER, Directory, Planned, Prediction, Refusal
from console.bench.resume.predicting import predict

__all__ = ["DEFAULT_FILTER", "Directory", "Planned", "Prediction", "Refusal", "predict"]
