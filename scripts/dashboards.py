"""The dashboards of deploy/monitoring/grafana, described: what is queried, from which metric, in
which unit.

A panel's title is a question or a fact, its expressions are PromQL over the metrics of
docs/metrics.md. `W` stands for the labels that choose the broker, `R` for Grafana's range of a
rate. `scripts/dashboards_json.py` makes Grafana's documents of it.
"""

from dataclasses import dataclass

W = 'job="stratamq",broker=~"$broker"'
R = "$__rate_interval"


@dataclass(frozen=True)
class Panel:
    """`asks`: (expression, legend) of each line. `stat`: the newest value large, instead of a
    graph. `note`: what a reader has to know, and when nothing is shown."""

    title: str
    asks: tuple[tuple[str, str], ...]
    unit: str = "short"
    stat: bool = False
    note: str = ""


@dataclass(frozen=True)
class Dashboard:
    """`rows`: panels under a heading, in order. `uid` is Grafana's name for it, and the file's."""

    uid: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def one(expression: str, legend: str) -> tuple[tuple[str, str], ...]:
    return ((expression, legend),)


def rate(name: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({name}{{{W}{more}}}[{R}]))"


def quantiles(name: str, by: str, more: str = "") -> tuple[tuple[str, str], ...]:
    """The median and the 99th percentile of a histogram."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    buckets = rate(f"{name}_bucket", f"le, {by}", more)
    return (
        (f"histogram_quantile(0.5, {buckets})", f"{legend} p50"),
        (f"histogram_quantile(0.99, {buckets})", f"{legend} p99"),
    )


MEMBER = "{{broker}} {{member}}"
SERVICE = "{{broker}} {{member}} {{service}}"

WELL = (
    Panel("Which services answer?", one(f"up{{{W}}}", SERVICE), stat=True),
    Panel("Which services take requests?", one(f"service_ready{{{W}}}", SERVICE), stat=True),
    Panel(
        "Does the log take messages?",
        one(f"commitlog_writable{{{W}}}", MEMBER),
        stat=True,
        note="A slave takes none: its master does.",
    ),
    Panel(
        "Which alarms fire?",
        one(f'sum by (alertname, broker) (ALERTS{{{W},alertstate="firing"}})', "{{alertname}}"),
        note="Nothing is shown while none does. What each means and asks for: docs/alarms.md.",
    ),
)
COMES_IN = (
    Panel(
        "How many messages come in?",
        one(rate("commitlog_appended_messages_total", "broker, member"), MEMBER),
        "mps",
    ),
    Panel(
        "How many bytes come in?",
        one(rate("commitlog_appended_bytes_total", "broker, member"), MEMBER),
        "Bps",
    ),
    Panel(
        "How long does an append take?",
        quantiles("commitlog_append_seconds", "member", ',part="whole"'),
        "s",
        note="Of what waited longest in each pass, from its arrival in the log to its answer.",
    ),
    Panel(
        "Where does the time of an append go?",
        one(
            rate("commitlog_append_seconds_sum", "member, part", ',part!="whole"')
            + " / "
            + rate("commitlog_append_seconds_count", "member, part", ',part!="whole"'),
            "{{member}} {{part}}",
        ),
        "s",
        note="The mean: until the pass began, the pass, its flush (SYNC_FLUSH), its slaves "
        "(SYNC_MASTER).",
    ),
    Panel(
        "How long does a flush take?",
        quantiles("commitlog_flush_seconds", "member"),
        "s",
    ),
    Panel(
        "What is refused, and why?",
        one(rate("commitlog_refused_appends_total", "broker, error"), "{{broker}} {{error}}"),
        "short",
        note="By the class of the error, a second. Nothing is shown before the first refusal.",
    ),
    Panel(
        "How much waits to be appended?",
        one(f"commitlog_pending_bytes{{{W}}}", MEMBER),
        "bytes",
    ),
    Panel(
        "How much is appended and not durable?",
        one(
            f'commitlog_offset_bytes{{{W},kind="appended"}} - ignoring (kind) '
            f'commitlog_offset_bytes{{{W},kind="flushed"}}',
            MEMBER,
        ),
        "bytes",
        note="A power loss of this broker alone takes it away.",
    ),
)
GOES_OUT = (
    Panel(
        "How many messages go out?",
        one(rate("dispatcher_pulled_messages_total", "broker, member"), MEMBER),
        "mps",
    ),
    Panel(
        "How do pulls end?",
        one(rate("dispatcher_pulls_total", "broker, status"), "{{broker}} {{status}}"),
        "reqps",
    ),
    Panel(
        "Which groups are behind?",
        (
            (f"dispatcher_group_lag_messages{{{W}}}", "{{group}}"),
            (f"dispatcher_other_groups_lag_messages{{{W}}}", "all others"),
        ),
        note="In messages: the 20 groups with the most, and the sum of the others.",
    ),
    Panel(
        "How old is what groups have yet to read?",
        ((f"dispatcher_group_lag_seconds{{{W}}}", "{{group}}"),),
        "s",
        note="Of the 20 groups with the most messages. No value: in the tier, or deleted.",
    ),
    Panel(
        "How many groups are behind?",
        (
            (f"dispatcher_groups_behind{{{W}}}", f"{MEMBER} behind"),
            (f"dispatcher_groups{{{W}}}", f"{MEMBER} known"),
        ),
    ),
    Panel(
        "How late do messages reach consume queues, index and tier?",
        one(f"commitlog_follower_lag_seconds{{{W}}}", "{{member}} {{follower}}"),
        "s",
    ),
    Panel(
        "How many messages have they yet to apply?",
        one(f"commitlog_follower_lag_messages{{{W}}}", "{{member}} {{follower}}"),
    ),
    Panel(
        "How many key queries are there?",
        one(rate("index_queries_total", "broker, member"), MEMBER),
        "reqps",
    ),
    Panel(
        "How long does a key query take?",
        quantiles("index_query_seconds", "member"),
        "s",
    ),
)
PROCESSES = (
    Panel(
        "How much of a processor does each service use?",
        one(f"rate(process_cpu_seconds_total{{{W}}}[{R}])", SERVICE),
        "percentunit",
    ),
    Panel(
        "How much memory does each service use?",
        one(f"process_resident_memory_bytes{{{W}}}", SERVICE),
        "bytes",
    ),
    Panel("How many files has it open?", one(f"process_open_fds{{{W}}}", SERVICE)),
    Panel(
        "Does a service stand still?",
        (
            (f"service_loop_stalled_seconds{{{W}}}", f"{SERVICE} loop"),
            (f"commitlog_disk_wait_seconds{{{W}}}", "{{member}} disk, {{lane}}"),
        ),
        "s",
    ),
    Panel(
        "Which calls fail?",
        one(rate("grpc_calls_total", "service, status", ',status!="OK"'), "{{service}} {{status}}"),
        "reqps",
        note="Nothing is shown before the first call that failed.",
    ),
    Panel(
        "How long do callers wait?",
        (quantiles("grpc_call_seconds", "service")[1],),
        "s",
    ),
)
BROKER = Dashboard(
    "stratamq-broker",
    "StrataMQ: broker",
    (
        ("Is it well?", WELL),
        ("What comes in", COMES_IN),
        ("What goes out", GOES_OUT),
        ("The processes", PROCESSES),
    ),
)

SLAVES = (
    Panel("How many slaves follow?", one(f"ha_slaves{{{W}}}", MEMBER), stat=True),
    Panel(
        "Does this slave follow its master?",
        one(f"ha_follows{{{W}}}", MEMBER),
        stat=True,
        note="0 of a master.",
    ),
    Panel(
        "How far are slaves behind, in messages?",
        one(f"commitlog_slave_lag_messages{{{W}}}", "{{slave}}"),
        note="Nothing is shown while no slave follows.",
    ),
    Panel(
        "How far are slaves behind, in time?",
        one(f"ha_slave_lag_seconds{{{W}}}", "{{slave}}"),
        "s",
        note="Nothing is shown while no slave follows.",
    ),
    Panel(
        "How far are slaves behind, in bytes?",
        one(f"ha_slave_lag_bytes{{{W}}}", "{{slave}}"),
        "bytes",
        note="Nothing is shown while no slave follows.",
    ),
    Panel(
        "How much is shipped?",
        (
            (rate("ha_sent_bytes_total", "broker, member"), f"{MEMBER} sent"),
            (rate("ha_received_bytes_total", "broker, member"), f"{MEMBER} received"),
        ),
        "Bps",
    ),
    Panel(
        "How much is appended and not confirmed?",
        one(
            f'commitlog_offset_bytes{{{W},kind="appended"}} - ignoring (kind) '
            f'commitlog_offset_bytes{{{W},kind="confirmed"}}',
            MEMBER,
        ),
        "bytes",
        note="Consumers do not see it yet: of a SYNC_MASTER what its slaves lack.",
    ),
    Panel(
        "Why do connections end?",
        (
            (rate("ha_closed_connections_total", "member, reason"), "{{member}} slave: {{reason}}"),
            (rate("ha_left_masters_total", "member, reason"), "{{member}} master: {{reason}}"),
        ),
        note="A second. Nothing is shown before the first that ended.",
    ),
)
AGENTS = (
    Panel("Does the election store answer?", one(f"agent_store_answers{{{W}}}", MEMBER), stat=True),
    Panel("Is anybody leading?", one(f"agent_has_leader{{{W}}}", MEMBER), stat=True),
    Panel("Does the leader work?", one(f"agent_leader_unable{{{W}}}", MEMBER), stat=True),
    Panel("Who leads?", one(f"agent_leads{{{W}}}", MEMBER), stat=True),
    Panel("Is failover paused?", one(f"agent_paused{{{W}}}", MEMBER), stat=True),
    Panel("Which term is it?", one(f"agent_term{{{W}}}", MEMBER)),
    Panel(
        "How old is the leader's last renewal?",
        (
            (f"agent_election_unchanged_seconds{{{W}}}", MEMBER),
            (f"max by (broker) (agent_ttl_seconds{{{W}}})", "{{broker}} replaced after"),
        ),
        "s",
    ),
    Panel("How many agents are known?", one(f"agent_known_agents{{{W}}}", MEMBER)),
    Panel(
        "Whose broker answers its agent?", one(f"agent_broker_answers{{{W}}}", MEMBER), stat=True
    ),
)
REPLICATION = Dashboard(
    "stratamq-replication",
    "StrataMQ: replication and failover",
    (("Slaves", SLAVES), ("Agents: nothing is shown where none run", AGENTS)),
)

DISK = (
    Panel(
        "How full is the volume?", one(f"commitlog_disk_used_ratio{{{W}}}", MEMBER), "percentunit"
    ),
    Panel(
        "When will it be full?",
        one(f"commitlog_disk_full_seconds{{{W}}}", MEMBER),
        "s",
        stat=True,
        note="Too full for messages, as it has filled in the last two hours. Nothing: it does not "
        "fill, or the log has not run for ten minutes yet.",
    ),
    Panel("Is it too full for messages?", one(f"commitlog_disk_full{{{W}}}", MEMBER), stat=True),
    Panel("How many segments are there?", one(f"commitlog_segments{{{W}}}", MEMBER)),
    Panel(
        "How much do log, queue and index files grow?",
        (
            (rate("commitlog_appended_bytes_total", "broker, member"), f"{MEMBER} log"),
            (rate("dispatcher_written_bytes_total", "broker, member"), f"{MEMBER} consume queues"),
        ),
        "Bps",
    ),
)
RETENTION = (
    Panel("Must an operator act?", one(f"janitor_alarm{{{W}}}", MEMBER), stat=True),
    Panel("Is anything deleted by the rule?", one(f"janitor_enabled{{{W}}}", MEMBER), stat=True),
    Panel(
        "How far back do messages reach?",
        one(f"janitor_oldest_segment_age_seconds{{{W}}}", MEMBER),
        "s",
    ),
    Panel(
        "What is deleted, and why?",
        one(rate("janitor_deleted_segments_total", "broker, reason"), "{{broker}} {{reason}}"),
        note="Segments a second. Nothing is shown before the first.",
    ),
    Panel(
        "What holds segments back?",
        one(f"janitor_held_segments{{{W}}}", "{{broker}} {{by}}"),
        note="Nothing is shown before the first that was held back.",
    ),
    Panel(
        "Does the janitor look?",
        (
            (rate("janitor_looks_total", "broker, member"), MEMBER),
            (rate("janitor_failed_looks_total", "broker, member"), f"{MEMBER} failed"),
        ),
        "reqps",
    ),
)
BYTES_ARE_RIGHT = (
    Panel(
        "Is stored data damaged?",
        (
            (f"commitlog_damaged_stretches{{{W}}}", f"{MEMBER} log"),
            (f"index_damaged_files{{{W}}}", f"{MEMBER} index files"),
        ),
        stat=True,
    ),
    Panel(
        "How fast is it verified?",
        one(rate("commitlog_scrubbed_bytes_total", "broker, member"), MEMBER),
        "Bps",
    ),
    Panel(
        "When was all of it verified last?",
        one(f"commitlog_scrub_ended_timestamp_seconds{{{W}}} * 1000 > 0", MEMBER),
        "dateTimeAsIso",
        stat=True,
        note="Nothing is shown before the first pass has ended.",
    ),
    Panel(
        "How far is recovery?",
        (
            (f"commitlog_recovery_progress_bytes{{{W}}}", f"{MEMBER} walked"),
            (f"commitlog_recovery_total_bytes{{{W}}}", f"{MEMBER} to walk"),
        ),
        "bytes",
    ),
    Panel(
        "How long did the log's last start take?",
        one(f"commitlog_recovery_seconds{{{W}}}", MEMBER),
        "s",
        stat=True,
    ),
    Panel(
        "By how much is the clock ahead?",
        one(f"commitlog_clock_ahead_seconds{{{W}}}", MEMBER),
        "s",
        note="While it is not believed: messages get the log's own time.",
    ),
)
TIER = (
    Panel("How late do messages reach the tier?", one(f"tier_lag_seconds{{{W}}}", MEMBER), "s"),
    Panel("How many messages wait?", one(f"tier_waiting_messages{{{W}}}", MEMBER)),
    Panel("How many queues fail?", one(f"tier_failing_queues{{{W}}}", MEMBER), stat=True),
    Panel(
        "How much goes into the tier?",
        one(rate("tier_committed_bytes", "broker, member"), MEMBER),
        "Bps",
    ),
    Panel(
        "Which requests go to the storage?",
        (
            (rate("tier_requests", "broker, kind"), "{{broker}} {{kind}}"),
            (rate("tier_request_errors", "broker, kind"), "{{broker}} {{kind}} failed"),
        ),
        "reqps",
    ),
    Panel(
        "What have the requests cost?",
        one(f"tier_cost_usd{{{W}}}", MEMBER),
        "currencyUSD",
        stat=True,
        note="Since the start, at the prices of the settings.",
    ),
    Panel(
        "How many reads does the cache answer?",
        (
            (rate("tier_cache_hits", "broker, member"), f"{MEMBER} by the cache"),
            (rate("tier_cache_misses", "broker, member"), f"{MEMBER} by the storage"),
        ),
        "reqps",
    ),
    Panel("How many queues has the tier?", one(f"tier_queues{{{W}}}", MEMBER)),
)
STORAGE = Dashboard(
    "stratamq-storage",
    "StrataMQ: disk, retention, tier",
    (
        ("Disk", DISK),
        ("Retention", RETENTION),
        ("Is the data what was written?", BYTES_ARE_RIGHT),
        ("Tier: nothing is shown where there is none", TIER),
    ),
)
DASHBOARDS = (BROKER, REPLICATION, STORAGE)
