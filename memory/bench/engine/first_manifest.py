"""What a manifest says before anything is played: all that decides the outcome."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel

from memory.bench.engine.cell import Job, open_record
from memory.bench.engine.manifest import Manifest, VariantRecord
from memory.bench.engine.matrix import Experiment
from memory.bench.engine.provenance import (
    data_record,
    provider_record,
    traits_record,
    version_record,
    wire_truth,
)
from memory.bench.engine.records import LeftOutRecord
from memory.bench.engine.role_set import role_records
from memory.bench.engine.settings import Variant
from memory.contract.adapter import AdapterTraits
from memory.contract.errors import MemslotError
from memory.plugins.config import MemslotConfig
from memory.plugins.opening import build_slot
from memory.plugins.registry import MemoryAdapterRegistry


def without_broken(
    experiment: Experiment, registry: MemoryAdapterRegistry
) -> tuple[Experiment, tuple[VariantRecord, ...]]:
    """The experiment without the providers that cannot be built, and the records of the others.

    Those that cannot are left out, and said to be broken.

    Raises:
        ConfigError: a provider's options cannot be used, or nobody is left.
    """
    kept: list[Variant] = []
    records: list[VariantRecord] = []
    broken: list[LeftOutRecord] = []
    last: MemslotError | None = None
    data = experiment.timelines(experiment.settings.seeds[0])
    for variant in experiment.settings.providers:
        given = experiment.config(variant)
        info = registry.selected(given)
        config, wired = wire_truth(given, info, data)
        options = config.parse_options(info.options)
        try:
            capabilities, traits = _build(config, registry)
        except MemslotError as error:
            last = error
            why = config.scrubber(options)(f"cannot be built: {error}")
            broken.append(LeftOutRecord(label=variant.label, why=why, broken=True))
            continue
        kept.append(variant)
        provider = provider_record(info, traits)
        records.append(
            VariantRecord(
                label=variant.label,
                series=variant.series or variant.label,
                group=variant.group,
                provider=provider,
                distributions=version_record(info, provider).distributions,
                config=config.redacted(options),
                config_hash=_hash_of(config, given, options),
                wired=wired,
                budget=given.memory.budget,
                event_context=variant.event_context or "field",
                counter=given.token_counter().name,
                capabilities=capabilities,
                traits=traits_record(traits),
                read_only=given.memory.read_only_test_sessions,
            )
        )
    if last is not None and not kept:
        raise last
    settings = experiment.settings.model_copy(update={"providers": tuple(kept)})
    left_out = (*experiment.left_out, *broken)
    return replace(experiment, settings=settings, left_out=left_out), tuple(records)


def first_manifest(
    experiment: Experiment,
    variants: tuple[VariantRecord, ...],
    registry: MemoryAdapterRegistry,
    experiment_id: str,
    created: datetime,
) -> Manifest:
    settings = experiment.settings
    data = {str(seed): experiment.timelines(seed) for seed in settings.seeds}
    hidden = {"output", "data", "executor", "providers", "roles", "diagnostics"}
    shown = settings.model_dump(mode="json", exclude=hidden)
    directory = settings.directory / experiment_id
    manifest = Manifest(
        experiment_id=experiment_id,
        created_at=created,
        versions=version_record(
            registry.selected(experiment.config(settings.providers[0])), variants[0].provider
        ),
        block=experiment.block,
        settings={
            **shown,
            "providers": [variant.label for variant in settings.providers],
            "diagnostics": sorted(settings.diagnostics),
        },
        left_out=experiment.left_out,
        hashes={},
        data={seed: data_record(item) for seed, item in data.items()},
        roles=role_records(settings),
        variants=variants,
        cells=tuple(
            open_record(Job(experiment, spec, directory, experiment_id)) for spec in experiment.cells()
        ),
    )
    return manifest.model_copy(update={"hashes": manifest.parts()})


def _build(config: MemslotConfig, registry: MemoryAdapterRegistry) -> tuple[tuple[str, ...], AdapterTraits]:
    """What a provider offers, and what it says of itself; nothing is opened."""
    with TemporaryDirectory(prefix="memslot-") as place:
        slot = build_slot(config, registry=registry, data_dir=Path(place))
        return tuple(sorted(slot.capabilities())), slot.traits


def _hash_of(examined: MemslotConfig, config: MemslotConfig, options: BaseModel) -> str:
    """Of what really runs: a cell makes its own scope, and takes over the namespace and the agent alone."""
    scope = config.memory.scope
    if scope is not None and (scope.backend_namespace is not None or scope.agent_id is not None):
        scope = scope.model_copy(update={"run_id": "run", "persona_id": "persona"})
    else:
        scope = None
    memory = examined.memory.model_copy(update={"scope": scope})
    return replace(examined, memory=memory).config_hash(options)
