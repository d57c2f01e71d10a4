"""The record as one JSON document."""

from kvcanary.record.run import RunRecord


def render(record: RunRecord) -> str:
    """Its schema is ``reports/schemas/record.schema.json``."""
    return record.model_dump_json(indent=2) + "\n"
