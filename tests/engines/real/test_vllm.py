"""vLLM, split into prefill and decode on the CPU, judged by the command that anybody runs."""

from pathlib import Path

from tests.cli.command import kvcanary
from tests.engines.real.environments import Environments
from tests.engines.real.vllm_pair import CONTEXT, prefill_decode


def test_limits_that_differ_are_a_capacity_failure(
    environments: Environments, tmp_path: Path
) -> None:
    """Each worker starts, since its pool holds its own ``max_model_len``; together they do not keep a promise."""
    with prefill_decode(environments, tmp_path, contexts=(CONTEXT // 2, CONTEXT)) as deployment:
        ended = kvcanary(tmp_path, "capacity", str(deployment.file))
    assert ended.code == 1, ended.said
    assert "2,048" in ended.said
    assert "danger window" in ended.said
