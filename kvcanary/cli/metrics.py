"""``kvcanary metrics``: what a monitoring system is set up with."""

import click


@click.group(short_help="A dashboard and alerts for the metrics of runs.")
def metrics() -> None:
    """Print what Grafana and Prometheus need for the metrics that `--report textfile=FILE` and
    `--report pushgateway=URL` write.
    """


@metrics.command(short_help="The Grafana dashboard.")
def dashboard() -> int:
    """Print the Grafana dashboard as JSON, for its import or its provisioning folder.

    \b
    Example:
      kvcanary metrics dashboard > /etc/grafana/dashboards/kvcanary.json
    """
    return _printed("grafana/kvcanary.json")


@metrics.command(short_help="The Prometheus alert rules.")
def alerts() -> int:
    """Print alert rules as YAML, for `rule_files` of Prometheus. Made for a run a day: what depends on that is
    marked PERIOD.

    \b
    Example:
      kvcanary metrics alerts > /etc/prometheus/rules/kvcanary.yaml
    """
    return _printed("prometheus/alerts.yaml")


def _printed(name: str) -> int:
    from kvcanary.data import data_path

    click.echo((data_path("reports") / name).read_text("utf-8"), nl=False)
    return 0
