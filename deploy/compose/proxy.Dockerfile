# What ends TLS before the memory servers and leads each user to theirs: HAProxy, from Debian.
#
#   docker build -t oxydra-memory-proxy:2.6 -f deploy/compose/proxy.Dockerfile deploy/compose
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${BASE_IMAGE}
USER root
RUN apt-get update && apt-get install --yes --no-install-recommends haproxy \
 && rm -rf /var/lib/apt/lists/*
COPY proxy.cfg /etc/haproxy/haproxy.cfg
WORKDIR /
CMD ["haproxy", "-f", "/etc/haproxy/haproxy.cfg"]
