"""`stratamq acl`: who may do what, in the file that `access.file` names.

The commands work on the file itself, with or without a broker; services read it again within a
second.
"""

from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.options import OPERATORS, OutputOption
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.files.clock import SystemClock
from stratamq.rpc.permission_file import (
    TEAM,
    Grant,
    Permissions,
    checked_name,
    date_of,
    grant_of,
)
from stratamq.rpc.permissions import Permission, ResourceKind
from stratamq.service.permission_changes import changing, read_permissions, write_permissions

acl_app = typer.Typer(help="Manage users, teams and permissions.", no_args_is_help=True)

FileOption = Annotated[
    Path,
    typer.Option(
        "--file",
        "-f",
        envvar="STRATAMQ_ACCESS_FILE",
        help="Use this permissions file (access.file).",
    ),
]
DEFAULT = Path("stratamq-access.json")
WhoArgument = Annotated[str, typer.Argument(help="User, @TEAM, or * for every authenticated user.")]
MayArgument = Annotated[
    str,
    typer.Argument(
        help="Action. For a topic: produce, consume, manage; for a group: consume, manage; "
        "for the broker: observe, operate, scan, member."
    ),
]
WhatArgument = Annotated[
    str,
    typer.Argument(help="Resource: topic:NAME, group:NAME (* matches any characters), or broker."),
]


def register(app: typer.Typer) -> None:
    app.add_typer(acl_app, name="acl", rich_help_panel=OPERATORS)


@acl_app.command("init")
def init(file: FileOption = DEFAULT) -> None:
    """Create an empty permissions file, which allows no user anything."""
    if file.exists() or file.is_symlink():
        raise InvalidRequestError(f"{file} already exists; it is not replaced")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_permissions(file, Permissions())
    typer.echo(
        f"{file.absolute()}: no user has any permission yet; add some with `stratamq acl grant`"
    )
    typer.echo(f"a broker:  stratamq up --set access.file={file.absolute()}")


@acl_app.command("list")
def list_rules(
    file: FileOption = DEFAULT,
    who: Annotated[
        str | None, typer.Option(help="Show only the rules that apply to this user.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the rules in order, the users with the numbers of their tokens, and the teams."""
    permissions = read_permissions(file)
    names = permissions.names_of(who) if who else None
    rules = Printer(output, ("who", "may", "what"))
    for rule in permissions.rules:
        if names is None or rule.who in names:
            rules.row({"kind": "rule", **rule.row()})
    rules.flush()
    users = Printer(output, ("user", "tokens", "teams"))
    for user in sorted(
        {*permissions.users, *(one for us in permissions.teams.values() for one in us)}
    ):
        if who in (None, user):
            teams = sorted(team for team, members in permissions.teams.items() if user in members)
            tokens = [f"{token.id} ({token.made})" for token in permissions.users.get(user, ())]
            row = {"kind": "user", "user": user, "tokens": ", ".join(tokens)}
            users.row(row | {"teams": ", ".join(teams)})
    users.flush()


@acl_app.command("grant")
def grant(
    who: WhoArgument, may: MayArgument, what: WhatArgument, file: FileOption = DEFAULT
) -> None:
    """Allow a user or team to do something: `stratamq acl grant alice consume 'topic:orders-*'`."""
    rule = grant_of(who, may, what)
    with changing(file) as permissions:
        if rule in permissions.rules:
            typer.echo(f"{rule}: already allowed")
            return
        permissions.rules.append(rule)
    typer.echo(f"{rule}")


@acl_app.command("revoke")
def revoke(
    who: WhoArgument, may: MayArgument, what: WhatArgument, file: FileOption = DEFAULT
) -> None:
    """Remove a rule, named as it was granted."""
    rule = grant_of(who, may, what)
    with changing(file) as permissions:
        if rule not in permissions.rules:
            raise NotFoundError(f"no such rule: {rule}; see `stratamq acl list`")
        permissions.rules.remove(rule)
    typer.echo(f"{rule}: revoked")


@acl_app.command("test")
def test(
    who: Annotated[str, typer.Argument(help="User.")],
    may: MayArgument,
    what: Annotated[str, typer.Argument(help="Resource: topic:NAME, group:NAME or broker.")],
    file: FileOption = DEFAULT,
) -> None:
    """Show whether a user may do something, and which rule decides. Exit code 1: not allowed."""
    grant = grant_of(checked_name(who), may, what)
    permissions = read_permissions(file)
    wanted = Permission(grant.kind, grant.verb, grant.pattern)
    rule = permissions.allowing(who, wanted)
    if rule is None:
        typer.echo(f"no: no rule lets {who} {wanted}{_near(permissions, who, grant)}")
        raise typer.Exit(1)
    typer.echo(f"yes: {rule}")


@acl_app.command("token")
def token(
    user: Annotated[str, typer.Argument(help="User; added if missing.")],
    file: FileOption = DEFAULT,
    revoked: Annotated[
        str | None,
        typer.Option(
            "--revoke", metavar="NUMBER", help="Revoke this token, or `all` of the user's tokens."
        ),
    ] = None,
    rocketmq: Annotated[
        bool,
        typer.Option(
            "--rocketmq",
            help="Keep the token in the file: RocketMQ's own clients sign with it, as secret key.",
        ),
    ] = False,
) -> None:
    """Create a token for a user and print it once on standard output, or revoke one.

    The file keeps only the token's digest, unless RocketMQ's clients sign with it: replace a token
    that was lost.
    """
    if revoked is None:
        with changing(file) as permissions:
            made = permissions.add_token(user, date_of(SystemClock().wall_ms()), signs=rocketmq)
        typer.echo(made)
        if rocketmq:
            typer.echo(f"for RocketMQ's clients: access key {user}, secret key above", err=True)
        typer.echo(f"to use it as {user}, put it in a file with mode 0600, and", err=True)
        typer.echo("export STRATAMQ_TOKEN_FILE=FILE", err=True)
        return
    with changing(file) as permissions:
        had = permissions.users.get(user, [])
        kept = [one for one in had if revoked not in ("all", one.id)]
        if len(kept) == len(had):
            raise NotFoundError(f"{user} has no token {revoked}: see `stratamq acl list`")
        permissions.users[user] = kept
    typer.echo(f"{user} now has {len(kept)} tokens")


@acl_app.command("team")
def team(
    name: Annotated[str, typer.Argument(help="Team name, without the @.")],
    users: Annotated[
        list[str] | None,
        typer.Argument(help="All members of the team; without any, the team is deleted."),
    ] = None,
    file: FileOption = DEFAULT,
) -> None:
    """Set the members of a team."""
    checked_name(name)
    members = sorted({checked_name(user) for user in users or ()})
    with changing(file) as permissions:
        if members:
            permissions.teams[name] = members
        elif permissions.teams.pop(name, None) is None:
            raise NotFoundError(f"there is no team {name}")
    typer.echo(f"{TEAM}{name}: {', '.join(members) or 'no more'}")


def _near(permissions: Permissions, who: str, grant: Grant) -> str:
    """Rules for the same verb and kind, so that a wrong pattern is seen."""
    names = permissions.names_of(who)
    near = [
        str(rule)
        for rule in permissions.rules
        if rule.who in names and rule.kind is grant.kind and rule.verb is grant.verb
    ]
    if grant.kind is ResourceKind.BROKER or not near:
        return ""
    return f" (there is: {'; '.join(near[:5])})"
