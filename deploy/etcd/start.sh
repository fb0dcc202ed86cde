#!/usr/bin/env bash
# Start etcd. A member with an empty volume that the others know as started has lost its volume: etcd refuses to
# start it under its old identity, so that it is removed from the cluster and added again, as a new member.
# ETCDCTL_ENDPOINTS are the client addresses of all members.
set -euo pipefail
# A shell that is process 1 ignores the engine's SIGTERM without this.
trap 'exit 143' TERM

readonly url=$ETCD_INITIAL_ADVERTISE_PEER_URLS

# The others' line of this member: ID, status, name, peer URL, client URL. A client URL is published by a member that
# has started; one without a name was added, and has not.
join() {
  local id name peers clients
  while IFS=', ' read -r id _ name peers clients _; do
    if [ "$peers" != "$url" ]; then continue; fi
    if [ -z "$name" ]; then export ETCD_INITIAL_CLUSTER_STATE=existing; return; fi
    if [ -z "$clients" ]; then return; fi # the first start of all
    echo "the volume of $ETCD_NAME is empty: it is removed from the cluster and added again" >&2
    etcdctl member remove "$id" >&2 || refused
  done <<<"$1"
  etcdctl member add "$ETCD_NAME" --peer-urls "$url" >&2 || refused
  export ETCD_INITIAL_CLUSTER_STATE=existing
}

refused() {
  echo "$ETCD_NAME cannot join with an empty volume: the others have no majority now. Start those that have their" \
    "volumes; if two volumes are lost, remove the third as well, and the leader registers itself again" >&2
  exit 1
}

if [ ! -d "$ETCD_DATA_DIR/member/wal" ] && members=$(etcdctl member list 2>/dev/null); then
  join "$members"
fi
exec etcd
