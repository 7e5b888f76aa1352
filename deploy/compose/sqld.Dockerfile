# The libSQL server, from its binary. Its project also publishes an image, libsql-server,
# which runs with the same options; this one needs no registry.
#
#   tools/get_sqld.sh
#   docker build -t oxydra-sqld:0.24.1 -f deploy/compose/sqld.Dockerfile .venv/sqld
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${BASE_IMAGE}
COPY sqld /usr/local/bin/sqld
USER root
RUN groupadd --gid 10002 sqld \
 && useradd --uid 10002 --gid sqld --no-create-home --no-log-init --home-dir /var/lib/sqld \
    --shell /usr/sbin/nologin sqld \
 && install -d -o sqld -g sqld -m 700 /var/lib/sqld
USER 10002:10002
WORKDIR /var/lib/sqld
CMD ["sqld", "--help"]
