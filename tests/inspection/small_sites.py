"""Small saved models of every kind, and a running server of their page."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from heedful.build_model import build_model
from heedful.config import Config, CorpusConfig, DataConfig, ModelConfig, TokenizerConfig
from heedful.inspection.page_server import PageServer
from heedful.inspection.static_site import SiteModel
from heedful.model.norms import BatchNorm
from heedful.model_dir import save_model
from heedful.text.tokenizer import train_tokenizer

LINES = [
    "The cat sat on the mat.",
    "A dog ran after the cat!",
    "Where is the train station?",
    "Good morning, Anna.",
] * 5


def save_small(directory: Path, *, tags: tuple[str, ...] = ("de", "zh"), **changes: Any) -> Path:
    """Save a model with random weights that translates from English into `tags`."""
    tokenizer = train_tokenizer(zip(LINES, LINES, strict=True), TokenizerConfig(vocab_size=300), tags=tags)
    size = tokenizer.source_vocab_size
    options = {
        "d_model": 16, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2, "max_length": 32,
    }  # fmt: skip
    model = ModelConfig(source_vocab_size=size, target_vocab_size=size, **{**options, **changes})
    corpora = tuple(CorpusConfig("a", "b", source_language="en", target_language=code) for code in tags)
    torch.manual_seed(3)
    built = build_model(model)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for module in built.modules():
            if isinstance(module, BatchNorm):
                module.running_mean.normal_(std=0.5)
                module.running_variance.uniform_(0.5, 2.0)
    config = Config(name=directory.name, model=model, data=DataConfig(train=corpora))
    save_model(directory, weights=built, config=config, tokenizer=tokenizer)
    return directory


@dataclass
class Answer:
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """One connection to a server, kept open."""

    connection: http.client.HTTPConnection

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, request: Any, **headers: str) -> Answer:
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        return self.ask("POST", path, body, **{"Content_Type": "application/json", **headers})


@contextmanager
def running(models: Sequence[SiteModel], **settings: Any) -> Iterator[PageServer]:
    """A server on a free port."""
    with PageServer(models, port=0, **settings) as server:
        thread = server.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def connected(server: PageServer) -> Iterator[Client]:
    """A client of a server."""
    connection = http.client.HTTPConnection(server.server_name, server.server_port, timeout=60)
    try:
        yield Client(connection)
    finally:
        connection.close()
