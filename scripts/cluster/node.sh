#!/usr/bin/env bash
# node.sh DIRECTORY: a Kubernetes of one node, in the network, mount and process namespaces that it is started in.
# DIRECTORY has minik8s and images.tar; everything it makes is in DIRECTORY/state. Ends with its first process.
set -euo pipefail
shopt -s lastpipe
here=$(cd "$(dirname "$0")" && pwd)
binaries=$1 state=$1/state token=lab
mkdir -p "$state/log" "$state/bin" "$state/cni"
cd "$state"
export PATH="$state/bin:$PATH" KUBECONFIG="$state/kubeconfig"

for component in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
  ln -sf "$binaries/minik8s" "bin/$component"
done
run() {
  local name=$1
  shift
  "$@" >"log/$name.log" 2>&1 &
}

mount --make-rshared /
# The kubelet writes settings of the whole machine: it gets copies to write.
for file in kernel/panic kernel/panic_on_oops vm/overcommit_memory vm/panic_on_oom kernel/keys/root_maxkeys \
  kernel/keys/root_maxbytes; do
  mkdir -p "sys/${file%/*}"
  cat "/proc/sys/$file" >"sys/$file"
  mount --bind "sys/$file" "/proc/sys/$file"
done
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip link set lo up
ip link add cni0 type bridge
ip addr add 10.88.0.1/24 dev cni0
ip link set cni0 up
echo 1 >/proc/sys/net/ipv4/ip_forward

echo "$token,admin,1,\"system:masters\"" >tokens.csv
openssl genrsa -out account.key 2048 2>/dev/null
openssl rsa -in account.key -pubout -out account.pub 2>/dev/null
cat >kubeconfig <<Y
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: lab, user: {token: $token}}]
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
current-context: lab
Y
run etcd etcd --data-dir etcd --unsafe-no-fsync --log-level warn
run apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 --cert-dir certificates --bind-address 0.0.0.0 \
  --advertise-address 10.88.0.1 --service-cluster-ip-range 10.96.0.0/16 --authorization-mode RBAC \
  --token-auth-file tokens.csv --allow-privileged --kubelet-preferred-address-types InternalIP \
  --service-account-issuer https://kubernetes.default.svc --service-account-key-file account.pub \
  --service-account-signing-key-file account.key
until [ "$(curl -sk -H "Authorization: Bearer $token" https://127.0.0.1:6443/readyz)" = ok ]; do sleep 0.3; done
run controllers kube-controller-manager --kubeconfig kubeconfig --leader-elect=false \
  --service-account-private-key-file account.key --root-ca-file certificates/apiserver.crt
run scheduler kube-scheduler --kubeconfig kubeconfig --leader-elect=false

cat >cni/10.conflist <<Y
{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.10", "gateway": "10.88.0.1"}]],
 "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$state/ipam"}}]}
Y
cat >containerd.toml <<Y
version = 2
root = "$state/containerd"
state = "$state/containerd-run"
[grpc]
  address = "$state/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/cni"
Y
run containerd containerd --config containerd.toml
until ctr -a containerd.sock version >/dev/null 2>&1; do sleep 0.2; done
ctr -a containerd.sock -n k8s.io images import "$binaries/images.tar" >log/images.log 2>&1
cat >kubelet.yaml <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://$state/containerd.sock
featureGates: {KubeletInUserNamespace: true}
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
resolvConf: /dev/null
clusterDNS: [10.88.0.1]
clusterDomain: cluster.local
syncFrequency: 5s
Y
run kubelet kubelet --config kubelet.yaml --kubeconfig kubeconfig --root-dir "$state/kubelet" \
  --hostname-override node1 --node-ip 10.88.0.1 --cert-dir certificates
run proxy kube-proxy --kubeconfig kubeconfig --hostname-override node1 --proxy-mode iptables \
  --cluster-cidr 10.88.0.0/24 --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 \
  --conntrack-tcp-timeout-close-wait 0
: >hosts
run dns dnsmasq -k -u root --no-resolv --no-hosts --addn-hosts="$state/hosts" --listen-address 10.88.0.1 \
  --bind-interfaces --pid-file= --local=/cluster.local/
run names python3 "$here/names.py" hosts $!
ready='{.status.conditions[?(@.type=="Ready")].status}'
until [ "$(kubectl get node node1 -o "jsonpath=$ready" 2>/dev/null)" = True ]; do sleep 0.5; done
until kubectl -n default get serviceaccount default >/dev/null 2>&1; do sleep 0.2; done
touch ready
wait
