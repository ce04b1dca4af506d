# Every image that kubeadm asks for, one static program each; kube-proxy alone needs tools of the system.
FROM scratch AS kube-apiserver
COPY bin/kube-apiserver /usr/local/bin/
FROM scratch AS kube-controller-manager
COPY bin/kube-controller-manager /usr/local/bin/
FROM scratch AS kube-scheduler
COPY bin/kube-scheduler /usr/local/bin/
FROM scratch AS etcd
COPY bin/etcd /usr/local/bin/
FROM scratch AS coredns
COPY bin/coredns /coredns
ENTRYPOINT ["/coredns"]
FROM docker.io/library/debian:bookworm-slim AS catatonit
RUN apt-get update && apt-get install -y --no-install-recommends catatonit
FROM scratch AS pause
COPY --from=catatonit /usr/bin/catatonit /pause
ENTRYPOINT ["/pause", "-P"]
FROM docker.io/library/debian:bookworm-slim AS kube-proxy
RUN apt-get update \
 && apt-get install -y --no-install-recommends conntrack iptables nftables kmod \
 && rm -rf /var/lib/apt/lists/*
COPY bin/kube-proxy /usr/local/bin/
