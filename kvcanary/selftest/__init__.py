"""The selftest: does kvcanary catch every fault of the lab, and accuse none of its innocents? Pure.

It knows nothing of the lab: which exchanges a fault had a part in is handed to it.
"""
