"""Runs in a process of its own: the installed MemOS' request models over bodies, as JSON from file to file.

Importing MemOS takes ten seconds, replaces the logging of the process and loads environment files, so no test does.
"""

import inspect
import json
import sys
from pathlib import Path


def main(orders_file, answer_file):
    from memos.api import product_models
    from memos.api.client import MemOSClient
    from memos.memories.textual.item import TreeNodeTextualMemoryMetadata

    def check(model, body):
        try:
            seen = getattr(product_models, model).model_validate(body)
        except Exception as error:
            return {"error": str(error)}
        return {"seen": seen.model_dump(mode="json")}

    orders = json.loads(orders_file.read_text())
    answer = {
        "checked": [check(model, body) for model, body in orders["bodies"]],
        "fields": {
            model: list(getattr(product_models, model).model_fields) for model in sorted(orders["models"])
        },
        "metadata": list(TreeNodeTextualMemoryMetadata.model_fields),
        "types": list(TreeNodeTextualMemoryMetadata.model_fields["memory_type"].annotation.__args__),
        "cloud": list(inspect.signature(MemOSClient.search_memory).parameters),
        "cloud_item": list(product_models.MemoryDetail.model_fields),
    }
    answer_file.write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
