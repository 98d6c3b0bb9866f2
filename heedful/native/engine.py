"""NativeEngine translates token ids with the search of `heedful.decoding`, without torch.

It does not import numpy either, because importing numpy takes longer than opening the model.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_float, c_int32, c_int64
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import DecodingConfig
from heedful.cpu_count import usable_cores
from heedful.errors import ConfigError, DecodingError, ModelDirectoryError
from heedful.model_dir.shortlist import PlainShortlist, Shortlist, read_plain_shortlist, read_shortlist
from heedful.native.bindings import (
    Intervention,
    SentencePairs,
    Settings,
    ShortlistArrays,
    TraceRequest,
    TraceTensor,
    TreeNode,
    load_library,
)
from heedful.native.convert import native_weights
from heedful.native.search_batch import SearchBatch, flatten, pointer
from heedful.native.weight_file import Numbers, read_shape
from heedful.search_types import (
    MIN_COUNTED_TOKENS,
    AttentionWeights,
    Hypothesis,
    PhrasePlacement,
    RequiredPhrase,
    SpecialTokens,
    longest_first,
    rows_per_sentence,
)

if TYPE_CHECKING:
    import numpy as np

PENALTIES = {"none": 0, "paper": 1, "average": 2}
MAX_BATCH_ROWS = 256
"""Maximum number of hypotheses in a batch; larger batches do not fit into the caches."""
MAX_THREADS_PER_BATCH = 16
"""Maximum number of threads that share a batch; more would mostly wait for each other."""
MIN_ROWS_PER_THREAD = 48
"""Minimum number of hypotheses per thread for separate batches; with fewer, weights would be read too often."""


class Handles:
    """Open engine handles and the number of running calls: no handle is closed while a call uses it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, self.process = library, os.getpid()
        self.opened: list[ctypes.c_void_p] = []
        self.num_calls, self.is_closed = 0, False
        self._changed = threading.Condition()

    def add(self, handle: int) -> ctypes.c_void_p:
        """Take ownership of a handle."""
        self.opened.append(ctypes.c_void_p(handle))
        return self.opened[-1]

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the handles open during a call."""
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
        """Refuse new calls and close all handles; with `wait`, after the running calls have ended."""
        if os.getpid() != self.process:  # a forked process does not have these threads and must not wait for them
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
    """An open model with its threads. Calls from several threads are serialized."""

    def __init__(self, path: str | Path, *, num_threads: int | None = None, kernels: str | None = None) -> None:
        """Open a file of native weights.

        `kernels` selects an instruction set; by default the one in HEEDFUL_KERNELS, or the fastest that the processor
        supports.
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
        self._reset()
        self._open_main()
        self.shape = read_shape(self.path)
        self.speculative = True
        """Whether greedy search of few sentences may decode speculatively; affects only the speed."""

        _engines.add(self)

    def _reset(self) -> None:
        """Set the state of an engine without open handles."""
        self._handles = Handles(self._library)
        self._finalizer = weakref.finalize(self, self._handles.close)
        self._main_handle: Any = None
        self._worker_handles: list[Any] = []
        self._open_lock = threading.RLock()

    def forget_parent(self) -> None:
        """After a fork: abandon the parent's handles, whose threads do not exist here; new ones open on demand."""
        was_closed = self._handles.is_closed
        self._finalizer.detach()
        self._reset()
        self._handles.is_closed = was_closed

    def _open_main(self) -> None:
        with self._open_lock, self._handles.in_use():
            if self._main_handle is None:
                self._main_handle = self._open(min(self.num_threads, MAX_THREADS_PER_BATCH))
                if self._shortlist is not None:
                    self.use_shortlist(self._shortlist)

    @property
    def _main(self) -> Any:
        """The handle whose threads share a batch."""
        if self._main_handle is None and not self._handles.is_closed:
            self._open_main()
        return self._main_handle

    @property
    def has_shortlist(self) -> bool:
        """Whether a shortlist is set."""
        return self._shortlist is not None

    def use_shortlist(self, shortlist: Shortlist | PlainShortlist) -> None:
        """Restrict translations to a shortlist's candidates, unless `decoding.shortlist` is false."""
        starts, targets, always = shortlist if isinstance(shortlist, PlainShortlist) else shortlist.lists()
        arrays = ShortlistArrays(
            *(len(starts) - 1, len(targets), len(always)),
            starts=pointer(starts, c_int64),
            targets=targets.buffer_info()[0],
            always=pointer(always, c_int32),
            target_size=targets.itemsize,
        )
        with self._open_lock, self._handles.in_use():
            for handle in self._handles.opened:
                self._call(self._library.heedful_shortlist, handle, arrays)
        self._shortlist = shortlist

    def _open(self, num_threads: int, *, shared: Any = None) -> Any:
        message = ctypes.create_string_buffer(1000)
        if shared is None:
            path = os.fsencode(self.path)
            handle = self._library.heedful_open(path, num_threads, self._kernel_name, message, len(message))
        else:
            handle = self._library.heedful_open_shared(shared, num_threads, message, len(message))
        if not handle:
            raise ModelDirectoryError(f"{_text(message)}.")
        return self._handles.add(handle)

    def _open_workers(self) -> list[Any]:
        """Handles with one thread each and shared weights, opened on first use, for many or large batches."""
        with self._open_lock, self._handles.in_use():
            while len(self._worker_handles) < self.num_threads:
                self._worker_handles.append(self._open(1, shared=self._main))
            return self._worker_handles

    @classmethod
    def load(
        cls,
        directory: str | Path,
        *,
        precision: str = "int8",
        num_threads: int | None = None,
        kernels: str | None = None,
    ) -> NativeEngine:
        """Load a model directory. Its weights are converted the first time and cached."""
        _library()  # fail before converting
        try:
            engine = cls(native_weights(directory, precision=precision), num_threads=num_threads, kernels=kernels)
        except ModelDirectoryError:  # the cached file or the model is damaged; converting again repairs or reports it
            path = native_weights(directory, precision=precision, force=True)
            engine = cls(path, num_threads=num_threads, kernels=kernels)
        shortlist = read_plain_shortlist(directory)
        if shortlist is not None:
            try:
                engine.use_shortlist(shortlist)
            except DecodingError:
                read_shortlist(directory)  # raises a more specific error
                raise
        return engine

    def close(self) -> None:
        """Wait for calls in other threads, then release the weights and threads."""
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
        phrases: Sequence[Sequence[RequiredPhrase]] | None = None,
        placement: PhrasePlacement | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the best `num_best` hypotheses of every sentence, found by the same search as `heedful.decoding`.

        The result for a sentence does not depend on the other sentences. `max_lengths`, `prefix` and `forbidden` give
        the maximum length, the forced prefix and the forbidden tokens of each sentence. `phrases`: up to 64
        phrases that each translation must contain; `Hypothesis.missing` has those that the maximum length excluded.
        `placement`: how the search finds the place of the phrases.
        """
        require_deterministic(config)
        if config.shortlist and not self.has_shortlist:
            raise ConfigError("decoding.shortlist: this model has no shortlist; make one with `heedful shortlist`.")
        prefixes = prefix if prefix is not None else [()] * len(sources)
        banned = forbidden if forbidden is not None else [()] * len(sources)
        required = phrases if phrases is not None else [()] * len(sources)
        if not len(sources) == len(max_lengths) == len(prefixes) == len(banned) == len(required):
            raise DecodingError("sources, max_lengths, prefix, forbidden and phrases must have the same length.")
        word_flags = placement.word_flags if placement else None
        if word_flags is not None and len(word_flags) != self.shape.target_vocab_size:
            raise DecodingError("word_flags must have one byte for each token of the target vocabulary.")
        found: list[list[Hypothesis]] = [[] for _ in sources]
        all_batches = batches([len(source) for source in sources], config)
        shares = distribute(all_batches, config, self.num_threads)
        queue = deque(shares or all_batches)

        def work(handle: Any) -> None:
            while queue:
                try:
                    batch = queue.popleft()
                except IndexError:  # another worker took the last
                    return
                results = self._translate(
                    handle,
                    [sources[i] for i in batch],
                    [prefixes[i] for i in batch],
                    [max_lengths[i] for i in batch],
                    [banned[i] for i in batch],
                    config,
                    special,
                    [required[i] for i in batch],
                    placement,
                )
                for index, hypotheses in zip(batch, results, strict=True):
                    found[index] = hypotheses

        if not shares:
            work(self._main)
        else:  # workers with separate batches do not wait for each other
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(self.num_threads) as workers:
                try:
                    list(workers.map(work, self._open_workers()))
                finally:
                    queue.clear()  # after an error the others stop too
        return found

    def speculation_counts(self) -> tuple[int, int]:
        """The numbers of speculative tokens that were accepted and rejected since the engine was opened."""
        accepted, rejected = c_int64(), c_int64()
        with self._handles.in_use():
            self._library.heedful_speculation_counts(self._main, accepted, rejected)
        return accepted.value, rejected.value

    def logits(self, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
        """Logits after each token of `target`, which begins with the start token: (T, V). Requires numpy."""
        import numpy as np

        result = array("f", bytes(4 * len(target) * self.shape.target_vocab_size))
        ids = [flatten([side])[0] for side in (source, target)]
        arguments = [argument for side in ids for argument in (pointer(side, c_int32), len(side))]
        self._call(self._library.heedful_logits, self._main, *arguments, pointer(result, c_float))
        return np.array(result).reshape(len(target), self.shape.target_vocab_size)

    def align_ids(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, layer: int, head: int | None = None
    ) -> list[AttentionWeights]:
        """Attention weights of each target token, the start token first, over the source tokens: (T, S).

        They are those of one head of a decoder layer, or the mean over its heads.
        """
        if len(sources) != len(targets):
            raise DecodingError("sources and targets must have the same length.")
        found = [AttentionWeights([], 0)] * len(sources)
        for batch in batches([len(source) for source in sources], DecodingConfig(method="greedy")):
            source, source_starts = flatten([sources[i] for i in batch])
            target, target_starts = flatten([targets[i] for i in batch])
            offsets = array("q", accumulate((len(sources[i]) * len(targets[i]) for i in batch), initial=0))
            weights = array("f", bytes(4 * offsets[-1]))
            pairs = SentencePairs(
                count=len(batch),
                source=pointer(source, c_int32),
                source_starts=pointer(source_starts, c_int64),
                target=pointer(target, c_int32),
                target_starts=pointer(target_starts, c_int64),
            )
            selection = layer, -1 if head is None else head
            self._call(self._library.heedful_align, self._main, pairs, *selection, pointer(weights, c_float))
            for i, offset in zip(batch, offsets, strict=False):
                width = len(sources[i])
                starts = range(offset, offset + width * len(targets[i]), width)
                found[i] = AttentionWeights([weights[start : start + width] for start in starts], width)
        return found

    def beam_tree_ids(
        self,
        source: Sequence[int],
        config: DecodingConfig,
        special: SpecialTokens,
        *,
        max_length: int,
        prefix: Sequence[int] = (),
        forbidden: Sequence[int] = (),
    ) -> tuple[list[Hypothesis], list[TreeNode]]:
        """Translate one sentence; returns the best hypotheses, and the continuations that the search considered.

        These are the best `2 * beam_size` of each step, best first; parents come before their children.
        """
        require_deterministic(config)
        batch = SearchBatch([source], [prefix], [max_length], [forbidden], config, self.shape.max_length)
        library, nodes = self._library, POINTER(TreeNode)()
        arguments = (self._settings(config, special), batch.sentences, batch.results)
        with self._owned(library.heedful_translate_tree, library.heedful_tree_free, *arguments) as tree:
            count = library.heedful_tree_nodes(tree, nodes)
            copied = (TreeNode * count).from_buffer_copy(ctypes.string_at(nodes, count * ctypes.sizeof(TreeNode)))
        return batch.hypotheses()[0], list(copied)

    def _translate(
        self,
        handle: Any,
        sources: Sequence[Sequence[int]],
        prefix: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        banned: Sequence[Sequence[int]],
        config: DecodingConfig,
        special: SpecialTokens,
        phrases: Sequence[Sequence[RequiredPhrase]],
        placement: PhrasePlacement | None,
    ) -> list[list[Hypothesis]]:
        longest = self.shape.max_length
        batch = SearchBatch(sources, prefix, max_lengths, banned, config, longest, phrases, placement)
        settings = self._settings(config, special)
        self._call(self._library.heedful_translate, handle, settings, batch.sentences, batch.results)
        return batch.hypotheses()

    def _settings(self, config: DecodingConfig, special: SpecialTokens) -> Settings:
        forbidden = array("i", sorted({special.pad_id, special.bos_id, *special.forbidden}))
        byte_ids = array("i", special.byte_ids)
        settings = Settings(
            beam_size=rows_per_sentence(config),
            num_best=1 if config.method == "greedy" else config.num_best,
            length_penalty=PENALTIES[config.length_penalty],
            min_length=config.min_length,
            no_repeat_ngram=config.no_repeat_ngram_size,
            bos_id=special.bos_id,
            eos_id=special.eos_id,
            num_forbidden=len(forbidden),
            length_penalty_alpha=config.length_penalty_alpha,
            forbidden=pointer(forbidden, c_int32),
            shortlist=config.shortlist is not False and self.has_shortlist,
            speculative=self.speculative,
            byte_ids=pointer(byte_ids, c_int32) if byte_ids else None,
        )
        settings.arrays = forbidden, byte_ids  # kept as long as the pointers to them
        return settings

    def trace_ids(
        self,
        source: Sequence[int],
        target: Sequence[int],
        special: SpecialTokens,
        *,
        max_length: int = 0,
        wanted: Sequence[str] = ("*",),
        interventions: Sequence[Intervention] = (),
    ) -> tuple[list[int], dict[str, Numbers]]:
        """Run a sentence pair through the model in float32 and record the tensors whose names match `wanted`.

        `target` begins with the start token. Up to `max_length` tokens in all, it is continued with the most probable
        tokens; the first result is the continued target without start and end token. `heedful.inspection` documents
        the names, and the interventions that change the pass.
        """
        settings = self._settings(DecodingConfig(method="greedy"), special)
        ids = [flatten([side])[0] for side in (source, target)]
        changes = (Intervention * len(interventions))(*interventions)
        request = TraceRequest(
            source=pointer(ids[0], c_int32),
            source_length=len(ids[0]),
            target=pointer(ids[1], c_int32),
            target_length=len(ids[1]),
            max_length=max_length,
            wanted="\n".join(wanted).encode(),
            interventions=changes,
            num_interventions=len(changes),
        )
        library, tokens = self._library, POINTER(c_int32)()
        with self._owned(library.heedful_trace, library.heedful_trace_free, settings, request) as trace:
            length = library.heedful_trace_target(trace, tokens)
            return tokens[1:length], dict(
                _read_tensor(library, trace, index) for index in range(library.heedful_trace_count(trace))
            )

    @contextmanager
    def _owned(self, function: Any, free: Any, *arguments: Any) -> Iterator[int]:
        """Call a function on the main handle that returns an object, and free the object at the end."""
        message = ctypes.create_string_buffer(1000)
        with self._handles.in_use():
            found = function(self._main, *arguments, message, len(message))
        if not found:
            raise DecodingError(f"{_text(message)}.")
        try:
            yield found
        finally:
            free(found)

    def _call(self, function: Any, *arguments: Any) -> None:
        message = ctypes.create_string_buffer(1000)
        with self._handles.in_use():
            if not function(*arguments, message, len(message)):
                raise DecodingError(f"{_text(message)}.")


def require_deterministic(config: DecodingConfig) -> None:
    """Refuse sampling."""
    if config.method == "sampling":
        raise ConfigError(
            "decoding.method=sampling: the native engine does not support sampling; use torch, or beam or greedy."
        )


def batches(lengths: Sequence[int], config: DecodingConfig) -> list[list[int]]:
    """Split sentences into batches of similar lengths, longest first; returns indices."""
    rows = rows_per_sentence(config)
    result: list[list[int]] = []
    tokens = 0
    for index in longest_first(lengths):
        counted = max(lengths[index], MIN_COUNTED_TOKENS) * rows
        full = result and ((len(result[-1]) + 1) * rows > MAX_BATCH_ROWS or tokens + counted > config.tokens_per_batch)
        if not result or full:
            result.append([])
            tokens = 0
        result[-1].append(index)
        tokens += counted
    return result


def distribute(batches: list[list[int]], config: DecodingConfig, num_threads: int) -> list[list[int]]:
    """Distribute batches to threads: many batches unchanged, few large ones split; empty if they are too small."""
    rows = rows_per_sentence(config)
    if num_threads == 1:
        return []
    if len(batches) >= 2 * num_threads:
        return batches
    if any(len(batch) * rows < MIN_ROWS_PER_THREAD * num_threads for batch in batches):
        return []
    return [batch[thread::num_threads] for batch in batches for thread in range(num_threads)]


def _read_tensor(library: ctypes.CDLL, trace: int, index: int) -> tuple[str, Numbers]:
    tensor = TraceTensor()
    library.heedful_trace_tensor(trace, index, tensor)
    shape = tuple(tensor.shape[: tensor.num_dimensions])
    values = bytearray(ctypes.string_at(tensor.values, 4 * math.prod(shape)))
    return tensor.name.decode(), Numbers("float32", shape, memoryview(values))


def _library() -> ctypes.CDLL:
    try:
        return load_library()
    except OSError as error:
        raise ConfigError(f"{error}.") from None


def _text(message: Any) -> str:
    return str(message.value.decode("utf-8", errors="replace")).rstrip(".")
