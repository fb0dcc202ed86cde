"""RocketMQ's mqadmin 5.3.3, unchanged, manages the users and permissions of `stratamq acl`: the row
acl of spec/remoting-acceptance.md."""

import pytest
from stratamq_gateway.policies import SUPER

from stratamq.rpc.permission_file import Grant, Permissions, dump
from stratamq.service.permission_changes import read_permissions
from tests.gateway.test_java_clients import VERSIONS, build, play, run, served

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

SECRET = "secret-of-root"
NEW, OTHER = "secret-of-shop", "another-secret"


def signing(user: str, secret: str) -> str:
    return f"-Dkey={user} -Dsecret={secret}"


def test_mqadmin_makes_users_that_clients_sign_as_and_takes_what_they_may(tmp_path):
    build("mqadmin")
    build(VERSIONS[-1])
    permissions = Permissions()
    permissions.set_secret("root", SECRET, "")
    permissions.rules = [Grant("root", one.verb, one.kind, one.name) for one in SUPER]
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text(f"accessKey: root\nsecretKey: {SECRET}\n")
    with served(tmp_path, f"access.file={file}") as address:

        def mqadmin(text: str) -> str:
            command, *options = text.split()
            home = f"-Drocketmq.home.dir={tmp_path}"
            done = play("mqadmin", command, "-n", address, *options, options=home)
            return done.stdout + done.stderr

        def rules() -> set[str]:
            return {str(one) for one in read_permissions(file).rules if one.who == "shop"}

        where = f"-b {address}"
        assert "success" in mqadmin(f"createUser {where} -u shop -p {NEW} -t Normal")
        assert "success" in mqadmin(
            f"createAcl {where} -s User:shop -r Topic:* -a Pub,Sub -d Allow"
        )
        assert "success" in mqadmin(f"createAcl {where} -s User:shop -r Group:* -a Sub -d Allow")
        row = "send-sync"
        assert run(VERSIONS[-1], address, row, options=signing("shop", NEW)) == f"{row}\tok\n"
        refused = run(VERSIONS[-1], address, row, options=signing("shop", "guessed"))
        assert "No route info" in refused, "not even a route"

        shown = mqadmin(f"getUser {where} -u shop")
        assert [one for one in shown.split()[-4:] if one != "null"] == ["shop", "Normal", "enable"]
        assert NEW not in mqadmin(f"listUser {where}")
        shown = mqadmin(f"getAcl {where} -s User:shop")
        assert "Topic:*" in shown and "Group:*" in shown and "Allow" in shown
        assert "Group:*" not in mqadmin(f"listAcl {where} -s shop -r Topic")
        denied = mqadmin(f"createAcl {where} -s User:shop -r Topic:a -a Pub -d Deny")
        assert "rules only allow here" in denied
        here = mqadmin(f"createAcl {where} -s User:shop -r Topic:a -a Pub -i 10.0.0.1 -d Allow")
        assert "wherever it calls from" in here

        assert "success" in mqadmin(f"updateAcl {where} -s User:shop -r Topic:* -a Sub -d Allow")
        assert rules() == {"shop may consume topic:*", "shop may consume group:*"}
        assert "success" in mqadmin(f"deleteAcl {where} -s User:shop -r Group:*")
        assert rules() == {"shop may consume topic:*"}
        assert "success" in mqadmin(f"updateUser {where} -u shop -p {OTHER}")
        assert "success" in mqadmin(f"deleteUser {where} -u shop")
        assert rules() == set() and "shop" not in read_permissions(file).users
        (tmp_path / "conf" / "tools.yml").write_text(f"accessKey: root\nsecretKey: {OTHER}\n")
        assert "check signature failed" in mqadmin(f"listUser {where}")
