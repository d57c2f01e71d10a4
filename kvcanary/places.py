"""Where kvcanary keeps things on this machine."""

import os
from pathlib import Path

import platformdirs


def state_folder() -> Path:
    """Records and locks: ``KVCANARY_STATE_DIR`` or the user's state folder."""
    named = os.environ.get("KVCANARY_STATE_DIR")
    return Path(named) if named else platformdirs.user_state_path("kvcanary")
