"""Traces: every intermediate result of a translation, from the native engine or from torch."""

from heedful.inspection.trace import Intervention, Trace, trace

__all__ = ["Intervention", "Trace", "trace"]
