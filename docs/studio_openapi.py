"""Writes studio/openapi.json, the schema of the studio's API, from which the page's types are generated.

    python docs/studio_openapi.py && (cd studio && npm run types)

A test compares the file with the application, so that the page's types are those of the server.
"""

import json
from pathlib import Path

from waycode.studio import Studio, create_app

SCHEMA = Path(__file__).parents[1] / "studio" / "openapi.json"


def schema() -> str:
    """The schema as JSON text."""
    return json.dumps(create_app(Studio.open([], model="sumo-small")).openapi(), indent=1) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema())
