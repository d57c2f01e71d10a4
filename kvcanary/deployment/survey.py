"""What is known of a target: asked, promised by whoever described it, and seen of its GPUs."""

from kvcanary.canary.sitekey import SiteKey
from kvcanary.deployment.discovery import discover
from kvcanary.deployment.facts import Facts
from kvcanary.deployment.target import Target
from kvcanary.probing.client import Client
from kvcanary.telemetry.gpus import GpuWatch
from kvcanary.telemetry.prometheus import Prometheus


async def facts_of(
    client: Client, target: Target, site_key: SiteKey, gpus: GpuWatch, *, deadline_seconds: float
) -> Facts:
    """Ask the deployment now. ``deadline_seconds``: longest wait for one document.

    Raises Unreachable or Unauthorized where the context limit stays unknown because nobody could be asked.
    """
    facts = await discover(
        client,
        target.context_tokens,
        context_source=target.context_source,
        trust_discovered=target.trust_discovered,
        workers=target.workers,
        prometheus=Prometheus(target.prometheus) if target.prometheus else None,
        site_key=site_key,
        deadline_seconds=deadline_seconds,
    )
    return await gpus.added_to(facts.model_copy(update={"output_tokens": target.output_tokens}))
