"""What Prometheus sees of the agent. Gauges are brought up to date by `observe`."""

from stratamq.service.metrics import Totals, counter, gauge
from stratamq_agent.agent import Agent

_STORE = "Does the election store answer?"
_LEADER = "Is there a leader, and which member is it?"
_SWITCHES = "Will a lost master be replaced?"

STORE_ANSWERS = gauge(
    "agent_store_answers", "1 while the election store responds to this agent.", asks=_STORE
)
STEPS_BACK = counter(
    "agent_store_steps_back",
    "Times the election store returned an older value than before, or none: it was "
    "restored, emptied, or has lost acknowledged writes.",
    asks=_STORE,
)
LEADS = gauge("agent_leads", "1 while the election names this agent's member.", asks=_LEADER)
IS_MASTER = gauge("agent_is_master", "1 while this agent's broker is a master.", asks=_LEADER)
HAS_LEADER = gauge(
    "agent_has_leader",
    "1 while the election names a leader that has renewed within `agent_ttl_seconds`, "
    "as last seen by this agent.",
    asks=_LEADER,
)
LEADER_UNABLE = gauge(
    "agent_leader_unable",
    "1 while the leader reports that for at least half of `agent_ttl_seconds` it could"
    " not acknowledge messages, or did not acknowledge any that were sent.",
    asks=_LEADER,
)
TERM = gauge("agent_term", "The term of the leader that the election names.", asks=_LEADER)
UNCHANGED = gauge(
    "agent_election_unchanged_seconds",
    "Time since this agent last saw a renewal; beyond `agent_ttl_seconds` the leader is replaced.",
    asks=_SWITCHES,
)
TTL = gauge("agent_ttl_seconds", "The setting agent.ttl_ms.", asks=_SWITCHES)
PAUSED = gauge("agent_paused", "1 while failover is paused by an operator.", asks=_SWITCHES)
AGENTS = gauge("agent_known_agents", "Agents registered in the election.", asks=_SWITCHES)
BROKER_ANSWERS = gauge(
    "agent_broker_answers", "1 while this agent's own broker responds.", asks=_SWITCHES
)


class Observer:
    """Carries what the agent knows into the registry."""

    def __init__(self, agent: Agent, ttl_ms: int) -> None:
        self._agent = agent
        self._ttl_s = ttl_ms / 1000
        self._totals = Totals()

    def observe(self) -> None:
        view, unchanged_s = self._agent.view, self._agent.watch.unchanged_ns / 1e9
        state = view.state
        STORE_ANSWERS.set(not view.store_problem)
        self._totals.set(STEPS_BACK, self._agent.watch.steps_back)
        LEADS.set(bool(view.member) and state.leader == view.member)
        IS_MASTER.set(bool(view.is_master))
        HAS_LEADER.set(bool(state.leader) and unchanged_s <= self._ttl_s)
        LEADER_UNABLE.set(state.unable is not None)
        TERM.set(state.term)
        UNCHANGED.set(unchanged_s)
        TTL.set(self._ttl_s)
        PAUSED.set(state.paused)
        AGENTS.set(len(state.agents))
        BROKER_ANSWERS.set(view.broker_answers)
