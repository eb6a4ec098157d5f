"""An embedding model in this process, by ``fastembed``. It needs no key and no server."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from memory.contract.errors import ConfigError, PluginLoadError
from memory.plugins.endpoint import LocalModel

_HUB_SECONDS = 5.0  # a reachable hub answers within one second
_SILENT_SECONDS = 60.0  # for so long, nobody waits for a hub again that did not answer in time
_BATCH = 32
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_registering = threading.Lock()
_asking = threading.Lock()
_silent_until = -math.inf  # by the monotonic clock


class LocalEmbedder:
    """Maps texts to vectors with a model of ``fastembed``. Safe for several threads.

    ``where`` is the block's place in the configuration, for errors.

    Attributes:
        name: ``local:`` and the model's name.
        dimensions: length of the vectors.
        prefixes: the prefix of a question, and the prefix of a document.

    Raises:
        PluginLoadError: fastembed is not installed.
        ConfigError: fastembed knows no such model, the directory lacks a file, or no hub can be reached.
    """

    def __init__(self, options: LocalModel, where: str) -> None:
        try:
            import fastembed
        except ImportError as error:
            needed = "needs the package fastembed: pip install 'memslot[local]'"
            raise PluginLoadError(f"{where}: provider: local {needed}") from error
        self.name = f"local:{options.model}"
        self.prefixes = options.prefixes(options.model)
        load = _at_path if options.path else _known
        self._model = load(fastembed, options, where)
        self.dimensions = len(self.embed_query("length"))

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        found: Iterable[Any] = self._model.query_embed([self.prefixes[0] + text])
        return next(vector.tolist() for vector in found)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of documents, in order, computed 32 at a time."""
        written = [self.prefixes[1] + text for text in texts]
        return [vector.tolist() for vector in self._model.passage_embed(written, batch_size=_BATCH)]


def _known(fastembed: Any, options: LocalModel, where: str) -> Any:
    """Load a model of fastembed's list: from the cache, or else from the hub."""
    listed = {model["model"].lower(): model for model in fastembed.TextEmbedding.list_supported_models()}
    described = listed.get(options.model.lower())
    if described is None:
        raise ConfigError(
            f"{where}.model: fastembed knows no model {options.model}; choose one of its list, or give the path of "
            "an ONNX model's directory"
        )
    return load_model(
        lambda **how: fastembed.TextEmbedding(options.model, **how),
        repository=described["sources"]["hf"],
        problem=f"{where}.model: {options.model} is not on this machine, and",
        instead=f"download it elsewhere and give its directory as {where}.path",
    )


def load_model(
    load: Callable[..., Any],
    *,
    repository: str | None,
    problem: str,
    instead: str,
    cache: bool = True,
) -> Any:
    """Load a model from the cache, or else from the hub.

    Args:
        load: builds a model of fastembed; takes ``cache_dir`` and ``local_files_only``.
        repository: the model's name at the hub; None if it comes from elsewhere.
        problem, instead: the start of the error message, and its advice.
        cache: False keeps downloads in fastembed's own directory.

    Raises:
        ConfigError: the hub does not answer within five seconds, or the download fails.
    """
    from loguru import logger

    logger.disable("fastembed")  # it logs an error for every source that it tries
    where = {"cache_dir": str(_cache())} if cache else {}
    try:
        return load(local_files_only=True, **where)
    except Exception:  # for a missing model, fastembed raises any error of its sources
        if repository is not None and not _hub_answers(repository):
            raise ConfigError(f"{problem} no model hub can be reached; {instead}") from None
    try:
        return load(**where)
    except Exception as error:
        raise ConfigError(f"{problem} its download failed ({type(error).__name__}); {instead}") from error


def _cache() -> Path:
    """The directory of downloads. fastembed's own default is the directory of temporary files."""
    if given := os.environ.get("FASTEMBED_CACHE_PATH"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fastembed"


def _hub_answers(repository: str) -> bool:
    """Whether the hub finds the model in time. fastembed itself would try three times, for 40 s."""
    import huggingface_hub

    global _silent_until
    answered = threading.Event()

    def ask() -> None:
        try:
            huggingface_hub.model_info(repository, timeout=_HUB_SECONDS)
        except Exception:
            return
        answered.set()

    with _asking:
        began = time.monotonic()
        if began < _silent_until:
            return False
        # A separate thread, because the look-up of a host's name has no time limit.
        asking = threading.Thread(target=ask, name="memslot-hub", daemon=True)
        asking.start()
        asking.join(_HUB_SECONDS)
        if not answered.is_set() and time.monotonic() - began > _HUB_SECONDS / 2:
            _silent_until = began + _SILENT_SECONDS
        return answered.is_set()


def _at_path(fastembed: Any, options: LocalModel, where: str) -> Any:
    """Load the model in a directory, with the pooling that its files name."""
    from fastembed.common.model_description import ModelSource, PoolingType

    assert options.path is not None
    directory = options.path.expanduser()
    if not directory.is_dir():
        raise ConfigError(f"{where}.path: there is no directory {directory}; give that of an ONNX model")
    for name in _TOKENIZER_FILES:
        if not (directory / name).is_file():
            raise ConfigError(f"{where}.path: {directory} lacks {name}; add the model's tokenizer files")
    files = sorted(chain(directory.glob("*.onnx"), directory.glob("onnx/*.onnx")))
    preferred = [file for file in files if file.stem in ("model", "model_optimized")]
    if not files:
        raise ConfigError(f"{where}.path: {directory} holds no .onnx file; export the model to ONNX")
    chosen = (preferred or files)[0].relative_to(directory).as_posix()
    registered = f"{options.model} at {directory}"
    with _registering:
        names = (model["model"] for model in fastembed.TextEmbedding.list_supported_models())
        if registered.lower() not in map(str.lower, names):
            fastembed.TextEmbedding.add_custom_model(
                model=registered,
                pooling=PoolingType[_pooling(directory)],
                normalization=True,
                sources=ModelSource(url="file:"),  # required, but not used with a path
                dim=1,  # required; the first vector shows the true length
                model_file=chosen,
            )
    try:
        return fastembed.TextEmbedding(registered, specific_model_path=str(directory))
    except Exception as error:
        why = f"{type(error).__name__}: {error}" if isinstance(error, ValueError) else type(error).__name__
        raise ConfigError(f"{where}.path: fastembed cannot load the model at {directory} ({why})") from error


def _pooling(directory: Path) -> str:
    """The pooling in the model's sentence-transformers configuration; without one, the mean."""
    try:
        noted = json.loads((directory / "1_Pooling" / "config.json").read_bytes())
    except (OSError, ValueError):
        return "MEAN"
    if noted.get("pooling_mode_cls_token"):
        return "CLS"
    return "LAST_TOKEN" if noted.get("pooling_mode_lasttoken") else "MEAN"
