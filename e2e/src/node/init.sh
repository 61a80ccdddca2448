#!/bin/busybox sh
# The first process of the guest. It starts containerd and the kubelet, and a shell on the second serial line.
PATH=/bin:/sbin:/usr/bin:/usr/sbin
export PATH
if [ -d /initramfs ]; then
    # runc cannot leave an initramfs by pivot_root: continue on a tmpfs.
    busybox rmdir /initramfs
    busybox mkdir /new
    busybox mount -t tmpfs -o size=2g none /new
    for entry in /*; do
        [ "$entry" = /new ] || busybox cp -a "$entry" /new/
    done
    exec /new/bin/busybox switch_root /new /init
fi
busybox mkdir -p /proc /sys /dev /tmp /run /var/log
busybox mount -t proc none /proc
busybox --install -s /bin
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
mount -t cgroup2 none /sys/fs/cgroup
echo '+cpu +cpuset +memory +io +pids' >/sys/fs/cgroup/cgroup.subtree_control
# As systemd does: everything that is no pod has a group of its own, with counters that miss nothing. The kernel counts the time of
# the whole machine in ticks, and emulated CPUs lose most of them.
mkdir /sys/fs/cgroup/system
echo $$ >/sys/fs/cgroup/system/cgroup.procs
for module in MODULES; do insmod "/modules/$module.ko"; done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
# Without a default route the kubelet finds no address of the node.
ip route add default via 10.0.2.2
hostname guest
# The test sends commands on this line, one in each; see `GuestNode::shell`.
stty -F /dev/ttyS1 raw -echo
(
    echo ready
    while read -r command; do
        sh -c "$command" </dev/null 2>&1
        printf '\n@@@%s\n' $?
    done
) </dev/ttyS1 >/dev/ttyS1 &
containerd --config /node/containerd.toml >/node/containerd.log 2>&1 &
until ctr --address /node/containerd.sock version >/dev/null 2>&1; do sleep 0.2; done
ctr --address /node/containerd.sock --namespace=k8s.io images import /node/image.tar
echo 'starting the kubelet'
kubelet KUBELET_FLAGS >/node/kubelet.log 2>&1 &
wait
