"""NativeEngine: ids in, hypotheses out, with the search of `heedful.decoding` and without torch.

A search imports no numpy either, which would take longer than opening the model does.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_float, c_int32, c_int64
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import DecodingConfig
from heedful.cpu_count import usable_cores
from heedful.errors import ConfigError, DecodingError, ModelDirectoryError
from heedful.model_dir.shortlist import PlainShortlist, Shortlist, read_plain_shortlist, read_shortlist
from heedful.native.bindings import Results, SentencePairs, Sentences, Settings, ShortlistArrays, load_library
from heedful.native.convert import native_weights
from heedful.native.weight_file import read_shape
from heedful.search_types import (
    MIN_COUNTED_TOKENS,
    AttentionWeights,
    Hypothesis,
    SpecialTokens,
    length_penalty,
    longest_first,
    rows_per_sentence,
)

if TYPE_CHECKING:
    import numpy as np

PENALTIES = {"none": 0, "paper": 1, "average": 2}
MOST_ROWS = 256
"""Hypotheses that are computed together; more would only fill the caches."""
MOST_TOGETHER = 16
"""Threads that compute one batch together; more would mostly wait for each other."""
LEAST_APART = 48
"""Hypotheses for each thread from which on threads compute batches of their own; fewer would read weights too often."""


class Handles:
    """Engines that the library has opened, and how many calls use them now: none is closed while it is used."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, self.process = library, os.getpid()
        self.opened: list[ctypes.c_void_p] = []
        self.num_calls, self.is_closed = 0, False
        self._changed = threading.Condition()

    def keep(self, handle: int) -> ctypes.c_void_p:
        """Remember a handle."""
        self.opened.append(ctypes.c_void_p(handle))
        return self.opened[-1]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the engines open for one call."""
        with self._changed:
            if self.is_closed:
                raise DecodingError("this engine was closed; load it again.")
            self.num_calls += 1
        try:
            yield
        finally:
            with self._changed:
                self.num_calls -= 1
                self._changed.notify_all()

    def close(self, *, wait: bool = False) -> None:
        """Let no call begin any more, wait for those that run (or leave the engines to them), and close all."""
        if os.getpid() != self.process:  # a forked process has none of their threads and must not wait for them
            return
        with self._changed:
            self.is_closed = True
            while wait and self.num_calls:
                self._changed.wait()
            while self.opened and not self.num_calls:
                self.library.heedful_close(self.opened.pop())


_engines: weakref.WeakSet[NativeEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class NativeEngine:
    """A model's weights in memory, and threads to compute with; several callers take turns."""

    def __init__(self, path: str | Path, *, num_threads: int | None = None, kernels: str | None = None) -> None:
        """Open a file of native weights.

        `kernels` names an instruction set; None: the one that HEEDFUL_KERNELS names, or the processor's fastest.
        """
        kernels = kernels or os.environ.get("HEEDFUL_KERNELS")
        self.path = Path(path)
        self._library = _library()
        self.num_threads = num_threads or usable_cores()
        self._kernel_name = kernels.encode() if kernels else None
        if kernels and not self._library.heedful_kernels(self._kernel_name):
            raise ConfigError(f"this processor has no {kernels} kernels.")
        self.kernels = str(self._library.heedful_kernels(self._kernel_name).decode())
        self._shortlist: Shortlist | PlainShortlist | None = None
        self._begin()
        self._open_first()
        self.shape = read_shape(self.path)
        self.speculative = True
        """Whether greedy search of few sentences may guess ahead, which changes nothing but the time."""

        _engines.add(self)

    def _begin(self) -> None:
        """Nothing is open yet."""
        self._handles = Handles(self._library)
        self._finalizer = weakref.finalize(self, self._handles.close)
        self._first: Any = None
        self._apart: list[Any] = []
        self._opening = threading.RLock()

    def forget_parent(self) -> None:
        """After a fork: leave the parent's engines alone, whose threads are not here; new ones open when needed."""
        was_closed = self._handles.is_closed
        self._finalizer.detach()
        self._begin()
        self._handles.is_closed = was_closed

    def _open_first(self) -> None:
        with self._opening, self._handles.in_use():
            if self._first is None:
                self._first = self._open(min(self.num_threads, MOST_TOGETHER))
                if self._shortlist is not None:
                    self.use_shortlist(self._shortlist)

    @property
    def _together(self) -> Any:
        """The engine whose threads compute one batch together."""
        if self._first is None and not self._handles.is_closed:
            self._open_first()
        return self._first

    @property
    def has_shortlist(self) -> bool:
        """Whether translations can be chosen from a shortlist's candidates."""
        return self._shortlist is not None

    def use_shortlist(self, shortlist: Shortlist | PlainShortlist) -> None:
        """Choose translations from a shortlist's candidates, unless a search says otherwise."""
        starts, targets, always = shortlist if isinstance(shortlist, PlainShortlist) else shortlist.lists()
        given = ShortlistArrays(
            *(len(starts) - 1, len(targets), len(always)),
            starts=_pointer(starts, c_int64),
            targets=targets.buffer_info()[0],
            always=_pointer(always, c_int32),
            target_size=targets.itemsize,
        )
        with self._opening, self._handles.in_use():
            for handle in self._handles.opened:
                self._call(self._library.heedful_shortlist, handle, given)
        self._shortlist = shortlist

    def _open(self, num_threads: int, *, beside: Any = None) -> Any:
        message = ctypes.create_string_buffer(1000)
        if beside is None:
            path = os.fsencode(self.path)
            handle = self._library.heedful_open(path, num_threads, self._kernel_name, message, len(message))
        else:
            handle = self._library.heedful_open_beside(beside, num_threads, message, len(message))
        if not handle:
            raise ModelDirectoryError(f"{_text(message)}.")
        return self._handles.keep(handle)

    def _workers(self) -> list[Any]:
        """For many or large batches: engines of one thread each over the same weights, opened when first needed."""
        with self._opening, self._handles.in_use():
            while len(self._apart) < self.num_threads:
                self._apart.append(self._open(1, beside=self._together))
            return self._apart

    @classmethod
    def load(
        cls,
        directory: str | Path,
        *,
        precision: str = "int8",
        num_threads: int | None = None,
        kernels: str | None = None,
    ) -> NativeEngine:
        """The engine of a model directory; its weights are converted at the first time and then kept."""
        _library()  # without it nothing need be converted
        try:
            engine = cls(native_weights(directory, precision=precision), num_threads=num_threads, kernels=kernels)
        except ModelDirectoryError:  # what was kept is damaged, or the model itself is, which is told now
            made = native_weights(directory, precision=precision, anew=True)
            engine = cls(made, num_threads=num_threads, kernels=kernels)
        shortlist = read_plain_shortlist(directory)
        if shortlist is not None:
            try:
                engine.use_shortlist(shortlist)
            except DecodingError:
                read_shortlist(directory)  # which tells more of what is wrong with it
                raise
        return engine

    def close(self) -> None:
        """Wait for calls that run in other threads, then let the weights and the threads go."""
        self._handles.close(wait=True)

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        config: DecodingConfig,
        special: SpecialTokens,
        *,
        max_lengths: Sequence[int],
        prefix: Sequence[Sequence[int]] | None = None,
        forbidden: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best `num_best` hypotheses of every sentence, as `heedful.decoding` would search for them.

        What is found for a sentence does not depend on the other sentences. `max_lengths`, `prefix` and `forbidden`
        give for each its longest allowed translation, what it must begin with, and the tokens that it may not have.
        """
        if config.method == "sampling":
            raise ConfigError("decoding.method=sampling: the native engine cannot draw; use torch, or beam or greedy.")
        if config.shortlist and not self.has_shortlist:
            raise ConfigError("decoding.shortlist: this model has no shortlist; make one with `heedful shortlist`.")
        beginnings = prefix if prefix is not None else [()] * len(sources)
        closed = forbidden if forbidden is not None else [()] * len(sources)
        if not len(sources) == len(max_lengths) == len(beginnings) == len(closed):
            raise DecodingError("sources, max_lengths, prefix and forbidden must be equally many.")
        found: list[list[Hypothesis]] = [[] for _ in sources]
        made = batches([len(source) for source in sources], config)
        shares = dealt_out(made, config, self.num_threads)
        waiting = deque(shares or made)

        def work(handle: Any) -> None:
            while waiting:
                try:
                    batch = waiting.popleft()
                except IndexError:  # another worker took the last
                    return
                found_here = self._translate(
                    handle,
                    [sources[i] for i in batch],
                    [beginnings[i] for i in batch],
                    [max_lengths[i] for i in batch],
                    [closed[i] for i in batch],
                    config,
                    special,
                )
                for index, hypotheses in zip(batch, found_here, strict=True):
                    found[index] = hypotheses

        if not shares:
            work(self._together)
        else:  # batches side by side never wait for each other
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(self.num_threads) as workers:
                try:
                    list(workers.map(work, self._workers()))
                finally:
                    waiting.clear()  # after an error the others stop too
        return found

    def speculation_counts(self) -> tuple[int, int]:
        """How many tokens that greedy search guessed ahead turned out right, and how many wrong, since opening."""
        right, wrong = c_int64(), c_int64()
        with self._handles.in_use():
            self._library.heedful_guesses(self._together, right, wrong)
        return right.value, wrong.value

    def logits(self, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
        """Logits of the token after each of `target`, whose first is the start token: (T, V). Needs numpy."""
        import numpy as np

        result = array("f", bytes(4 * len(target) * self.shape.target_vocab_size))
        ids = [joined([side])[0] for side in (source, target)]
        arguments = [argument for side in ids for argument in (_pointer(side, c_int32), len(side))]
        self._call(self._library.heedful_logits, self._together, *arguments, _pointer(result, c_float))
        return np.array(result).reshape(len(target), self.shape.target_vocab_size)

    def align_ids(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, layer: int, head: int | None = None
    ) -> list[AttentionWeights]:
        """How much the step that reads each target token, the start token first, attends to each source token: (T, S).

        By a head of a decoder layer, or by the mean over its heads.
        """
        if len(sources) != len(targets):
            raise DecodingError("sources and targets must be equally many.")
        found = [AttentionWeights([], 0)] * len(sources)
        for batch in batches([len(source) for source in sources], DecodingConfig(method="greedy")):
            source, source_starts = joined([sources[i] for i in batch])
            target, target_starts = joined([targets[i] for i in batch])
            places = array("q", accumulate((len(sources[i]) * len(targets[i]) for i in batch), initial=0))
            whole = array("f", bytes(4 * places[-1]))
            pairs = SentencePairs(
                count=len(batch),
                source=_pointer(source, c_int32),
                source_starts=_pointer(source_starts, c_int64),
                target=_pointer(target, c_int32),
                target_starts=_pointer(target_starts, c_int64),
            )
            shown = layer, -1 if head is None else head
            self._call(self._library.heedful_align, self._together, pairs, *shown, _pointer(whole, c_float))
            for i, place in zip(batch, places, strict=False):
                width = len(sources[i])
                starts = range(place, place + width * len(targets[i]), width)
                found[i] = AttentionWeights([whole[start : start + width] for start in starts], width)
        return found

    def _translate(
        self,
        handle: Any,
        sources: Sequence[Sequence[int]],
        prefix: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        closed: Sequence[Sequence[int]],
        config: DecodingConfig,
        special: SpecialTokens,
    ) -> list[list[Hypothesis]]:
        num_best = 1 if config.method == "greedy" else config.num_best
        limits = array("i", max_lengths)
        tokens, starts = joined(sources)
        beginnings, beginning_starts = joined(prefix)
        forbidden = array("i", sorted({special.pad_id, special.bos_id, *special.forbidden}))
        byte_ids = array("i", special.byte_ids)
        closed_ids, closed_starts = joined(closed)
        settings = Settings(
            beam_size=rows_per_sentence(config),
            num_best=num_best,
            length_penalty=PENALTIES[config.length_penalty],
            min_length=config.min_length,
            no_repeat_ngram=config.no_repeat_ngram_size,
            bos_id=special.bos_id,
            eos_id=special.eos_id,
            num_forbidden=len(forbidden),
            length_penalty_alpha=config.length_penalty_alpha,
            forbidden=_pointer(forbidden, c_int32),
            shortlist=config.shortlist is not False and self.has_shortlist,
            speculative=self.speculative,
            byte_ids=_pointer(byte_ids, c_int32) if byte_ids else None,
        )
        given = Sentences(
            count=len(sources),
            tokens=_pointer(tokens, c_int32),
            starts=_pointer(starts, c_int64),
            prefix=_pointer(beginnings, c_int32),
            prefix_starts=_pointer(beginning_starts, c_int64),
            max_lengths=_pointer(limits, c_int32),
            forbidden=_pointer(closed_ids, c_int32),
            forbidden_starts=_pointer(closed_starts, c_int64),
        )
        places = array("q", accumulate((num_best * (max(limit, 0) + 1) for limit in limits), initial=0))
        ids, log_probs = array("i", bytes(4 * places[-1])), array("f", bytes(4 * places[-1]))
        lengths = array("i", bytes(4 * len(sources) * num_best))
        results = Results(
            _pointer(places, c_int64), _pointer(ids, c_int32), _pointer(log_probs, c_float), _pointer(lengths, c_int32)
        )
        self._call(self._library.heedful_translate, handle, settings, given, results)
        return [
            [
                read_found(ids[first : first + length], log_probs[first : first + length], limits[i], config)
                for j in range(num_best)
                if (length := lengths[i * num_best + j]) and (first := places[i] + j * (limits[i] + 1)) >= 0
            ]
            for i in range(len(sources))
        ]

    def _call(self, function: Any, *arguments: Any) -> None:
        message = ctypes.create_string_buffer(1000)
        with self._handles.in_use():
            if not function(*arguments, message, len(message)):
                raise DecodingError(f"{_text(message)}.")


def batches(lengths: Sequence[int], config: DecodingConfig) -> list[list[int]]:
    """Indices of the sentences that are computed together, longest first, so that like lengths meet."""
    rows = rows_per_sentence(config)
    made: list[list[int]] = []
    tokens = 0
    for index in longest_first(lengths):
        counted = max(lengths[index], MIN_COUNTED_TOKENS) * rows
        full = made and ((len(made[-1]) + 1) * rows > MOST_ROWS or tokens + counted > config.tokens_per_batch)
        if not made or full:
            made.append([])
            tokens = 0
        made[-1].append(index)
        tokens += counted
    return made


def dealt_out(made: list[list[int]], config: DecodingConfig, num_threads: int) -> list[list[int]]:
    """Batches for threads that compute each its own: many as they are, few large ones in shares; small ones: none."""
    rows = rows_per_sentence(config)
    if num_threads == 1:
        return []
    if len(made) >= 2 * num_threads:
        return made
    if any(len(batch) * rows < LEAST_APART * num_threads for batch in made):
        return []
    return [batch[thread::num_threads] for batch in made for thread in range(num_threads)]


def joined(lists: Sequence[Sequence[int]]) -> tuple[array[int], array[int]]:
    """Concatenated lists of ids, and their offsets."""
    starts = array("q", accumulate(map(len, lists), initial=0))
    try:
        return array("i", chain.from_iterable(lists)), starts
    except OverflowError:
        raise DecodingError("a token id is far outside of any vocabulary.") from None


def read_found(ids: array[int], log_probs: array[float], limit: int, config: DecodingConfig) -> Hypothesis:
    """A hypothesis from its row of results."""
    log_prob = sum(log_probs.tolist())
    return Hypothesis(
        tokens=ids.tolist(),
        token_log_probs=log_probs.tolist(),
        log_prob=log_prob,
        score=log_prob / length_penalty(float(len(ids)), config),
        finished=len(ids) <= limit,
    )


def _library() -> ctypes.CDLL:
    try:
        return load_library()
    except OSError as error:
        raise ConfigError(f"{error}.") from None


def _pointer(numbers: array[Any], kind: Any) -> Any:
    """The address of the numbers, which the caller must keep."""
    return ctypes.cast(numbers.buffer_info()[0], POINTER(kind))


def _text(message: Any) -> str:
    return str(message.value.decode("utf-8", errors="replace")).rstrip(".")
