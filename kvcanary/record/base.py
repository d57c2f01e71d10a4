"""What all recorded values share."""

from pydantic import BaseModel, ConfigDict


class Recorded(BaseModel):
    """An immutable value that a run record can hold. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
