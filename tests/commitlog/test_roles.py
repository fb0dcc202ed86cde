"""Which role a start has: the configured one is the first, what was decided later stays."""

import pytest
from stratamq_commitlog.roles import (
    PEERS_NOT_ASKED,
    ROLE_PATH,
    ChosenBy,
    RoleFile,
    RoleState,
    at_start,
)

from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.log_state import Role

ASYNC, SYNC, SLAVE = Role.ASYNC_MASTER, Role.SYNC_MASTER, Role.SLAVE
BY_CONFIGURATION, BY_OPERATOR = ChosenBy.CONFIGURATION, ChosenBy.OPERATOR
BY_TERM = ChosenBy.HIGHER_TERM


@pytest.mark.parametrize(
    ("configured", "stored", "role", "promotes"),
    [
        (ASYNC, None, ASYNC, False),
        (SLAVE, None, SLAVE, False),
        (SLAVE, (SLAVE, BY_CONFIGURATION), SLAVE, False),
        (SYNC, (ASYNC, BY_CONFIGURATION), SYNC, False),
        (ASYNC, (SLAVE, BY_CONFIGURATION), ASYNC, True),
        (SLAVE, (ASYNC, BY_CONFIGURATION), SLAVE, False),
        (SLAVE, (ASYNC, BY_OPERATOR), ASYNC, False),
        (SYNC, (ASYNC, BY_OPERATOR), SYNC, False),
        (ASYNC, (SLAVE, BY_OPERATOR), SLAVE, False),
        (SYNC, (SLAVE, BY_TERM), SLAVE, False),
        (SLAVE, (SLAVE, BY_TERM), SLAVE, False),
    ],
)
def test_the_role_of_a_start(configured, stored, role, promotes):
    state = None if stored is None else RoleState(*stored, term=3, master="m:1", reason="because")
    started = at_start(configured, state, wait_for_peers=False)
    assert (started.state.role, started.promotes, started.held) == (role, promotes, "")
    difference = started.state.difference(configured)
    if role is configured:
        assert difference == ""
    else:
        assert difference == (
            f"the role is {role.name} and not {configured.name} (commitlog.role): because"
        )


def test_a_master_with_peers_is_held_at_every_start():
    first = at_start(ASYNC, None, wait_for_peers=True)
    assert first.held == PEERS_NOT_ASKED
    assert at_start(ASYNC, first.state, wait_for_peers=False).held == PEERS_NOT_ASKED


def test_a_role_that_cannot_be_read_is_held_until_an_operator_sets_it():
    previous = RoleState(ASYNC, BY_OPERATOR)
    held = at_start(ASYNC, previous, wait_for_peers=False, damage="role.json: bad").uncertain
    assert held.startswith("role.json: bad") and "replica promote --force" in held


def test_a_master_that_never_was_anything_else_has_no_file():
    disk = SimulatedDisk()
    roles = RoleFile(disk.files(), ASYNC)
    roles.keep(roles.start(wait_for_peers=False).state, 0)
    assert disk.tree.find(ROLE_PATH) is None


def test_what_is_stored_is_found_and_a_damaged_file_is_reported_as_damaged():
    disk = SimulatedDisk()
    files = disk.files()
    roles = RoleFile(files, SLAVE)
    roles.keep(roles.start(wait_for_peers=False).state, 2)
    assert RoleFile(files, ASYNC).start(wait_for_peers=False).promotes
    state = RoleState(SYNC, BY_OPERATOR, 7, "", "it was promoted to term 7", True)
    roles.store(state)
    again = RoleFile(files, SLAVE)
    assert again.start(wait_for_peers=False).state == state
    disk.rot(ROLE_PATH, 90, b"?")
    damaged = RoleFile(files, SLAVE).start(wait_for_peers=False)
    assert damaged.state.role is SLAVE and "does not fit its checksum" in damaged.uncertain
