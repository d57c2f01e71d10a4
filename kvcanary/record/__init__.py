"""The run record: every arrow of the flow as it happened, without any server text."""
