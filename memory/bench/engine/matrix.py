"""An experiment as a file: providers x settings x users x seeds x replicates.

Two entries of ``providers`` may name one provider with different settings. Values filled in here are
recorded, so that a run can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from memory.bench.data.language import load_language
from memory.bench.data.timeline import TimelineSet
from memory.bench.engine.manifest import LeftOutRecord
from memory.bench.engine.settings import (
    RUN_DEFAULTS,
    ExperimentSettings,
    Variant,
    load_timelines,
)
from memory.contract.errors import ConfigError, PluginLoadError
from memory.contract.scope import MemoryScope
from memory.plugins.blocks import SECTIONS, Lines, Problems, load_yaml, nearest, parse_block
from memory.plugins.config import MemslotConfig, load_config
from memory.plugins.redaction import resolve_paths
from memory.plugins.registry import MemoryAdapterRegistry, missing_modules

BlockName = Literal["bench", "run"]


@dataclass(frozen=True, slots=True)
class CellSpec:
    """One persona of one seed under one provider, in one replicate."""

    variant: int
    seed: int
    replicate: int
    persona: int
    persona_id: str
    label: str
    seed_place: int = 0  # index in the list of seeds; the directory's name must not tell a memory the seed

    @property
    def cell_id(self) -> str:
        return f"{self.variant + 1:02}-s{self.seed_place + 1}-r{self.replicate}-p{self.persona + 1}"


def cell_specs(
    labels: Sequence[str], personas: Mapping[int, Sequence[str]], replicates: int
) -> list[CellSpec]:
    """The cells of these providers and personas (by seed), with replicates outermost."""
    return [
        CellSpec(number, seed, replicate, place, persona_id, label, seed_place)
        for replicate in range(1, replicates + 1)
        for seed_place, (seed, ids) in enumerate(personas.items())
        for place, persona_id in enumerate(ids)
        for number, label in enumerate(labels)
    ]


@dataclass(frozen=True)
class Experiment:
    """A matrix, read and checked. It can be sent to another process."""

    settings: ExperimentSettings  # paths made absolute
    # The ``memory:`` block with its variables unresolved, so that it gains no secret.
    content: dict[str, Any] = field(repr=False)
    source: str
    base: Path  # of relative paths
    lines: Lines = field(repr=False)
    block: BlockName = "bench"
    left_out: tuple[LeftOutRecord, ...] = ()
    notes: tuple[str, ...] = ()  # what was filled in for missing settings

    @cached_property
    def scope(self) -> MemoryScope | None:
        """``memory.scope``. Cells take over the fields that they do not set themselves."""
        return self.config(self.settings.providers[0]).memory.scope

    def config(self, variant: Variant) -> MemslotConfig:
        """The configuration of one provider with its setting. The environment fills in variables."""
        memory = self.content["memory"]
        selected = {memory.get("backend"), memory.get("condition")} - {None}
        config = load_config(
            _with(self.content, self._listed(variant)),
            provider=None if selected == {variant.provider} else variant.provider,
            named_by=(self.block, "providers"),
        )
        for group, named in (("backends", "backend"), ("conditions", "condition")):
            if config.provider not in (memory.get(group) or {}):  # point errors about its fields to its name
                self.lines["memory", group, config.provider] = self.lines.of(("memory", named))
        return replace(config, base=self.base, problem=self.problem)

    def _listed(self, variant: Variant) -> Variant:
        """A variant with ``phrase_list`` gets the public phrases of the package as an option."""
        if not variant.phrase_list:
            return variant
        language = load_language()
        markers = (marker for attribute in language.attributes for marker in attribute.markers)
        phrases = sorted({form for marker in markers for form in language.forms_of(marker)})
        return variant.model_copy(update={"options": {**variant.options, "phrases": phrases}})

    @property
    def problem(self) -> Problems:
        return Problems(self.source, self.lines)

    def placing(self) -> AbstractContextManager[None]:
        """Adds file and line to errors about ``bench.`` fields, and the name of their block."""
        return self.problem.placing(bench=self.block)

    def timelines(self, seed: int) -> TimelineSet:
        return load_timelines(self.settings, seed)

    def cells(self) -> list[CellSpec]:
        """All cells in the order of play: persona by persona, so that an interrupted run has all providers."""
        settings = self.settings
        personas = {
            seed: [each.persona_id for each in self.timelines(seed).timelines] for seed in settings.seeds
        }
        return cell_specs([each.label for each in settings.providers], personas, settings.replicates)


def _with(content: Mapping[str, Any], variant: Variant) -> dict[str, Any]:
    """The ``memory:`` block with a variant's own options and budget."""
    memory = dict(content["memory"])
    if variant.options:
        group = next(
            (name for name in ("backends", "conditions") if variant.provider in (memory.get(name) or {})),
            "backends",
        )
        blocks = memory[group] = dict(memory.get(group) or {})
        blocks[variant.provider] = {**(blocks.get(variant.provider) or {}), **variant.options}
    if variant.budget is not None:
        memory["budget"] = {**(memory.get("budget") or {}), **variant.budget.model_dump(exclude_unset=True)}
    return {"memory": memory}


def load_experiment(
    source: str | Path | Mapping[str, Any],
    *,
    block: BlockName = "bench",
    providers: Sequence[str] | None = None,
    selected: bool = False,
    registry: MemoryAdapterRegistry | None = None,
    fair_tokens: int | None = None,
    **overrides: Any,
) -> Experiment:
    """Read a matrix and check everything that can be checked without playing.

    Args:
        providers, overrides: take precedence over the block's fields, unless they are None.
        selected: play with the provider that ``memory`` selects.
        fair_tokens: common token budget of several providers, if the file gives none.
    """
    content, lines = (source, Lines()) if isinstance(source, Mapping) else load_yaml(Path(source))
    name = "config" if isinstance(source, Mapping) else str(source)
    problem = Problems(name, lines)
    if selected:  # checks the file as any command does
        providers = [load_config(source).provider]
    written = _block(content, block, problem)
    overrides["providers"] = None if providers is None else list(providers)
    given = {key: value for key, value in overrides.items() if value is not None}
    base = Path() if isinstance(source, Mapping) else Path(source).absolute().parent
    settings = _settings(written, given, block, problem)
    own = {key: resolve_paths(getattr(settings, key), base) for key in written.keys() - given.keys()}
    settings = settings.model_copy(update=own)
    if not isinstance(content.get("memory"), Mapping):
        raise problem(("memory",), "is missing; a configuration starts with 'memory:' and names a backend")
    memory = {"memory": dict(content["memory"])}
    notes = () if fair_tokens is None else _with_common_budget(memory["memory"], settings, fair_tokens)
    experiment = Experiment(settings, memory, name, base, lines, block, notes=notes)
    with problem.placing():
        experiment = _without_absent(experiment, registry or MemoryAdapterRegistry(), problem)
    with experiment.placing():
        experiment.timelines(settings.seeds[0])
    return experiment


def _with_common_budget(memory: dict[str, Any], settings: ExperimentSettings, tokens: int) -> tuple[str, ...]:
    """Give all providers a common token budget if the file limits none. Returns a note about it."""
    budget = memory.get("budget")
    budget = dict(budget) if isinstance(budget, Mapping) else {}
    given = settings.budgets or any(each.budget and each.budget.max_tokens for each in settings.providers)
    if given or budget.get("max_tokens") is not None or len(settings.providers) < 2:
        return ()
    memory["budget"] = {"max_items": None, **budget, "max_tokens": tokens}
    return (
        f"The file gives no token budget, so each provider may show {tokens:,} tokens. Set "
        "memory.budget.max_tokens to choose another.",
    )


def _block(content: Mapping[str, Any], block: BlockName, problem: Problems) -> dict[str, Any]:
    known = (*SECTIONS, "bench") if block == "run" else ("memory", "bench", "run")
    if unknown := sorted(str(key) for key in content if key not in known):
        raise problem((unknown[0],), f"is not a known section{nearest(unknown[0], known)}")
    if block == "run":
        if not isinstance(content.get("run"), Mapping | None):
            raise problem(("run",), "must be a mapping")
        return dict(content.get("run") or {})
    for section in ("memory", "bench"):
        if not isinstance(content.get(section), Mapping):
            raise problem((section,), "is missing; an experiment has a memory block and a bench block")
    return dict(content["bench"])


def _settings(
    written: dict[str, Any], given: dict[str, Any], block: BlockName, problem: Problems
) -> ExperimentSettings:
    filled = {**(RUN_DEFAULTS if block == "run" else {}), **written, **given}
    if block == "run" and isinstance(filled["game"], Mapping):
        filled["game"] = {**RUN_DEFAULTS["game"], **filled["game"]}
    if not filled.get("providers") and block == "run":
        raise problem((block, "providers"), "names no provider; list those to compare")
    return parse_block(ExperimentSettings, filled, block, problem)


def parsed_run(config: MemslotConfig) -> ExperimentSettings:
    """The ``run:`` block of a configuration as ``memslot run`` reads it."""
    return _settings(dict(config.run or {}), {"providers": [config.provider]}, "run", config.problem)


def _without_absent(experiment: Experiment, registry: MemoryAdapterRegistry, problem: Problems) -> Experiment:
    """Leave out providers that lack an SDK, a variable or a working plugin, by one policy for every command.

    The others are crossed with every budget.
    """
    settings = experiment.settings
    reasons = [_absent(experiment, variant, registry) for variant in settings.providers]
    left_out = tuple(reason for reason in reasons if reason is not None)
    kept = tuple(each for each, reason in zip(settings.providers, reasons, strict=True) if reason is None)
    if not kept:
        why = "; ".join(f"{item.label}: {item.why}" for item in left_out)
        raise problem((experiment.block, "providers"), f"leaves nobody: {why}")
    crossed = settings.model_copy(update={"providers": kept}).crossed()
    names = {name for each in crossed for name in (each.label, each.series)}
    if settings.control is not None and settings.control not in names:
        why = next((item.why for item in left_out if item.label == settings.control), "cannot be played")
        raise problem((experiment.block, "control"), f"{settings.control} {why}; install it, or name another")
    settings = settings.model_copy(update={"providers": crossed})
    return replace(experiment, settings=settings, left_out=left_out)


def _absent(
    experiment: Experiment, variant: Variant, registry: MemoryAdapterRegistry
) -> LeftOutRecord | None:
    unset = [name for name in variant.needs if not os.environ.get(name)]
    if unset:
        return LeftOutRecord(label=variant.label, why=f"needs {', '.join(unset)} in the environment")
    where = f"{experiment.source}: {experiment.block}.providers, {variant.label}"
    try:
        config = experiment.config(variant)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    try:
        info = registry.selected(config)
    except PluginLoadError as error:
        return LeftOutRecord(label=variant.label, why=str(error), broken=True)
    missing = missing_modules(info)
    if not missing:
        return None
    return LeftOutRecord(label=variant.label, why=f"needs {info.install or ', '.join(missing)}")
