"""Write ``schema.json`` beside this file: the JSON schema of a run's ``manifest.json``."""

import json
from pathlib import Path

from memory.bench.engine.manifest import Manifest

schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema()}
text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
Path(__file__).with_name("schema.json").write_text(text, encoding="utf-8")
