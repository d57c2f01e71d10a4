"""Property tests find the same examples everywhere, and none of them is a race against a clock."""

from hypothesis import settings

settings.register_profile("kvcanary", deadline=None, derandomize=True)
settings.load_profile("kvcanary")
