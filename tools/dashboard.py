"""The Grafana dashboard, from code: `make docs` writes it to ``reports/grafana/kvcanary.json``."""

from collections.abc import Iterator, Mapping

from grafana_foundation_sdk.builders import common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import BigValueGraphMode, GraphTresholdsStyleMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

WIDTH = 24
DAY = 86_400.0
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
VERDICTS = {"0": ("PASS", "green"), "1": ("FAIL", "red"), "3": ("INCONCLUSIVE", "yellow")}
CLAIMS = {"0": ("pass", "green"), "1": ("fail", "red"), "3": ("inconclusive", "yellow")}


def dashboard_json() -> str:
    """The dashboard as Grafana imports it."""
    built = (
        Dashboard("kvcanary")
        .uid("kvcanary")
        .description("Does every request attend to its own KV pages? Metrics: docs/reports.md.")
        .tags(["kvcanary", "llm", "kv-cache"])
        .time("now-7d", "now")
        .refresh("5m")
        .timezone("browser")
        .readonly()
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_choice("target", "Target"))
        .with_variable(_choice("suite", "Suite"))
    )
    for title, panels in _rows():
        built = built.with_row(Row(title))
        for panel in panels:
            built = built.with_panel(panel)
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def _choice(label: str, title: str) -> QueryVariable:
    query = f"label_values(kvcanary_last_run_timestamp_seconds, {label})"
    chosen = QueryVariable(label).label(title).query(query).datasource(SOURCE)
    return (
        chosen.refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def _rows() -> Iterator[tuple[str, list[Builder[models.Panel]]]]:
    yield (
        "Last run",
        [
            _stat("Verdict", f"max by (target, suite) ({_of('kvcanary_exit_code')})").mappings(
                [_mapping(VERDICTS)]
            ),
            _stat("Leaks", f"sum({_of('kvcanary_findings', severity='leak')})").thresholds(
                _steps((None, "green"), (1, "red"))
            ),
            _stat("Since the last run", f"time() - {_of('kvcanary_last_run_timestamp_seconds')}")
            .unit("s")
            .thresholds(_steps((None, "green"), (2 * DAY, "red"))),
            _stat(
                "Since the last pass",
                f"time() - {_of('kvcanary_last_success_timestamp_seconds')}",
            )
            .unit("s")
            .thresholds(_steps((None, "green"), (2 * DAY, "yellow"), (7 * DAY, "red"))),
            _timeline(
                "Verdicts", f"max by (target, suite) ({_of('kvcanary_exit_code')})", VERDICTS
            ),
            _timeline(
                "Claims",
                "max by (target, suite, claim) ("
                f"{_of('kvcanary_claim', status='fail')} + on (target, suite, claim) "
                f"3 * {_of('kvcanary_claim', status='inconclusive')})",
                CLAIMS,
                "{{target}} {{claim}}",
            ),
        ],
    )
    yield (
        "Findings",
        [
            _series(
                "Findings by severity",
                f"sum by (severity) ({_of('kvcanary_findings')})",
                "{{severity}}",
            ),
            table.Panel()
            .title("Rules of the last run")
            .datasource(SOURCE)
            .span(WIDTH // 2)
            .height(8)
            .with_target(
                _query(f"sum by (target, suite, rule) ({_of('kvcanary_rule_findings')}) > 0", "")
                .instant()
                .format(PromQueryFormat.TABLE)
            ),
        ],
    )
    yield (
        "What a pass is worth",
        [
            _series(
                "Bad answers: upper 95 % bound of the worst stratum",
                f"max by (probe) ({_of('kvcanary_bad_answers_bound_ratio')})",
                "{{probe}}",
            )
            .unit("percentunit")
            .max(1),
            _series(
                "Exposed tokens: pages that had been others'",
                f"max by (probe) ({_of('kvcanary_exposed_tokens')})",
                "{{probe}}",
            ),
            _series(
                "Answers",
                f"sum by (probe, result) ({_of('kvcanary_answers')})",
                "{{probe}} {{result}}",
            ),
            _series(
                "Decoys recognised",
                f"min by (target, suite) ({_of('kvcanary_decoys_recognised_ratio')})",
                "{{target}} {{suite}}",
            )
            .unit("percentunit")
            .max(1),
        ],
    )
    yield (
        "Capacity",
        [
            _series(
                "Smallest pool, as a part of the promised context",
                f"min by (target, role) ({_of('kvcanary_capacity_ratio')})",
                "{{target}} {{role}}",
            )
            .unit("percentunit")
            .thresholds(_steps((None, "red"), (1, "green")))
            .thresholds_style(
                common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.LINE)
            ),
            _series(
                "Danger window: lengths that prefill refuses and decode takes",
                f"max by (target) ({_of('kvcanary_danger_window_tokens')})",
                "{{target}}",
            ),
            _series(
                "Pools and the promised context",
                f"min by (target, role) ({_of('kvcanary_pool_tokens')})",
                "{{target}} {{role}}",
            ).with_target(
                _query(
                    f"max by (target) ({_of('kvcanary_context_tokens')})",
                    "{{target}} promised",
                    "B",
                )
            ),
        ],
    )
    yield (
        "Time and cost",
        [
            _series(
                "Time to the first token, by prompt length",
                f"max by (length) ({_of('kvcanary_first_token_seconds', statistic='median')})",
                "up to {{length}}",
            ).unit("s"),
            _series(
                "Tokens of a run",
                f"sum by (target, suite) ({_of('kvcanary_run_prompt_tokens')})",
                "{{target}} {{suite}} prompts",
            ).with_target(
                _query(
                    f"sum by (target, suite) ({_of('kvcanary_run_completion_tokens')})",
                    "{{target}} {{suite}} answers",
                    "B",
                )
            ),
            _series(
                "Requests of a run",
                f"sum by (target, suite) ({_of('kvcanary_run_requests')})",
                "{{target}} {{suite}}",
            ),
            _series(
                "Duration of a run",
                f"max by (target, suite) ({_of('kvcanary_run_duration_seconds')})",
                "{{target}} {{suite}}",
            ).unit("s"),
        ],
    )


def _of(metric: str, **labels: str) -> str:
    """The metric of what is chosen above the panels."""
    fixed = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f'{metric}{{target=~"$target",suite=~"$suite"{fixed}}}'


def _query(promql: str, legend: str, ref: str = "A") -> Dataquery:
    return Dataquery().datasource(SOURCE).ref_id(ref).expr(promql).legend_format(legend)


def _stat(title: str, promql: str) -> stat.Panel:
    target = _query(promql, "{{target}} {{suite}}").instant()
    return (
        stat.Panel()
        .title(title)
        .datasource(SOURCE)
        .graph_mode(BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .span(WIDTH // 4)
        .height(5)
        .with_target(target)
    )


def _series(title: str, promql: str, legend: str) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .title(title)
        .datasource(SOURCE)
        .min(0)
        .span(WIDTH // 2)
        .height(8)
        .with_target(_query(promql, legend))
    )


def _timeline(
    title: str,
    promql: str,
    words: Mapping[str, tuple[str, str]],
    legend: str = "{{target}} {{suite}}",
) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .title(title)
        .datasource(SOURCE)
        .mappings([_mapping(words)])
        .span(WIDTH // 2)
        .height(8)
        .with_target(_query(promql, legend))
    )


def _mapping(words: Mapping[str, tuple[str, str]]) -> models.ValueMap:
    options = {
        value: models.ValueMappingResult(text=text, color=color)
        for value, (text, color) in words.items()
    }
    return models.ValueMap(options=options)


def _steps(*steps: tuple[float | None, str]) -> ThresholdsConfig:
    listed = [models.Threshold(value=value, color=color) for value, color in steps]
    return ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(listed)
