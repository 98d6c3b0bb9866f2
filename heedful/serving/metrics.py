"""The metrics of the server in the text format of Prometheus. No label contains text, keys or addresses of clients."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
Labels = tuple[str, ...]


class Metric:
    """A named metric with one value for each combination of label values."""

    kind = "gauge"

    def __init__(self, name: str, description: str, labels: Sequence[str] = ()) -> None:
        self.name, self.description, self.labels = f"heedful_{name}", description, tuple(labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}

    def lines(self) -> Iterator[str]:
        """The lines of this metric."""
        yield f"# HELP {self.name} {self.description}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, value in sorted(self.values.items()):
            yield f"{self.name}{_in_braces(zip(self.labels, values, strict=True))} {value:g}"


class Counter(Metric):
    """A number that only grows."""

    kind = "counter"

    def add(self, amount: float = 1, labels: Labels = ()) -> None:
        """Count more."""
        self.values[labels] = self.values.get(labels, 0.0) + amount

    def lines(self) -> Iterator[str]:
        """The lines, with all digits."""
        yield f"# HELP {self.name} {self.description}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, value in sorted(self.values.items()):
            yield f"{self.name}{_in_braces(zip(self.labels, values, strict=True))} {value:.0f}"


class Gauge(Metric):
    """A number that may grow and shrink; `read` is called for its value if given."""

    def __init__(self, name: str, description: str, read: Callable[[], float] | None = None) -> None:
        super().__init__(name, description)
        self.read = read

    def set(self, value: float) -> None:
        """Replace the value."""
        self.values[()] = value

    def add(self, amount: float) -> None:
        """Change the value."""
        self.values[()] += amount

    def lines(self) -> Iterator[str]:
        """The lines, with the current value."""
        if self.read is not None:
            self.set(self.read())
        yield from super().lines()


class Histogram(Metric):
    """The number of observations up to each bound, their number and sum."""

    kind = "histogram"

    def __init__(self, name: str, description: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        super().__init__(name, description, labels)
        self.bounds = tuple(bounds)
        self.counts: dict[Labels, list[int]] = {} if labels else {(): [0] * (len(self.bounds) + 1)}

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Count an observation."""
        counts = self.counts.setdefault(labels, [0] * (len(self.bounds) + 1))
        counts[bisect_left(self.bounds, value)] += 1
        self.values[labels] = self.values.get(labels, 0.0) + value

    def lines(self) -> Iterator[str]:
        """The lines of all buckets."""
        yield f"# HELP {self.name} {self.description}"
        yield f"# TYPE {self.name} {self.kind}"
        for values, counts in sorted(self.counts.items()):
            pairs = list(zip(self.labels, values, strict=True))
            for bound, total in zip((*map(str, self.bounds), "+Inf"), accumulate(counts), strict=True):
                yield f"{self.name}_bucket{_in_braces([*pairs, ('le', bound)])} {total}"
            yield f"{self.name}_sum{_in_braces(pairs)} {self.values.get(values, 0.0):g}"
            yield f"{self.name}_count{_in_braces(pairs)} {sum(counts)}"


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self.requests = Counter("requests_total", "Requests by route and status.", ("route", "method", "status"))
        self.request_seconds = Histogram(
            "request_seconds", "Time from the request to the end of the response.", SECONDS, ("route",)
        )
        self.open_requests = Gauge("open_requests", "Requests that are being answered.")
        self.texts = Counter("texts_total", "Translated texts.")
        self.characters = Counter("characters_total", "Characters of translated texts.")
        self.source_tokens = Counter("source_tokens_total", "Source tokens of translated texts.")
        self.target_tokens = Counter("target_tokens_total", "Tokens of translations.")
        self.queue_texts = Gauge("queue_texts", "Texts that wait for an engine.")
        self.queue_seconds = Histogram("queue_seconds", "Time that a text waits for an engine.", SECONDS)
        self.texts_refused = Counter("texts_refused_total", "Texts refused because the queue was full.")
        self.texts_cancelled = Counter("texts_cancelled_total", "Texts dropped because the client went away.")
        self.batch_texts = Histogram("batch_texts", "Texts of a batch.", TEXTS)
        self.batch_fill = Histogram("batch_fill", "Estimated tokens of a batch as a share of batch_tokens.", SHARES)
        self.batch_seconds = Histogram("batch_seconds", "Time in which an engine translates a batch.", SECONDS)
        self.batches_repeated = Counter("batches_repeated_total", "Batches sent again after an engine died.")
        self.restarts = Counter("engine_restarts_total", "Engine processes that died and were started again.")
        self.reloads = Counter("reloads_total", "Reloads of the models by result.", ("result",))
        self.load_seconds = Gauge("model_load_seconds", "Time in which an engine process last loaded the models.")
        self.ready = Gauge("ready", "1 if the server is ready, else 0.")

    def text(self) -> str:
        """All metrics."""
        metrics = [metric for metric in vars(self).values() if isinstance(metric, Metric)]
        return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _in_braces(pairs: object) -> str:
    listed = ",".join(f'{name}="{_escape(value)}"' for name, value in pairs)  # type: ignore[attr-defined]
    return f"{{{listed}}}" if listed else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
