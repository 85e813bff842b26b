# A worker, for every role. BASE: Debian, Ubuntu or an image made from one, with Python 3.11 or newer.
#   docker build -t clotho:v1 .
# Where pip needs settings of its own, such as another index: --secret id=pip,src=pip.conf
ARG BASE=docker.io/library/python:3.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements-worker.lock ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /opt/clotho \
 && /opt/clotho/bin/pip install --no-cache-dir --disable-pip-version-check --quiet --require-hashes \
      -r requirements-worker.lock
COPY pyproject.toml README.md LICENSE worker.py atropos_adapter.py ./
COPY client client
COPY clotho clotho
COPY workflows workflows
COPY activities activities
COPY environments environments
COPY examples examples
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/clotho/bin/pip install --no-cache-dir --disable-pip-version-check --quiet --no-deps .

FROM ${BASE}
# What local sandboxes take: bubblewrap, mount and the makers of their disks. tini reaps what outlives a command.
RUN for program in bwrap mkfs.ext4 mount tini; do command -v "$program" >/dev/null || missing=1; done \
 && if [ -n "$missing" ]; then \
      apt-get update -qq && apt-get install -y -qq --no-install-recommends bubblewrap e2fsprogs mount tini \
      && rm -rf /var/lib/apt/lists/*; \
    fi \
 && useradd --uid 10001 --home-dir /var/lib/clotho/home --shell /usr/sbin/nologin clotho \
 && install -d -m 711 /var/lib/clotho && install -d -o clotho -g clotho /var/lib/clotho/home
COPY --from=build /opt/clotho /opt/clotho
ENV PATH=/opt/clotho/bin:$PATH \
    HOME=/var/lib/clotho/home \
    PYTHONDONTWRITEBYTECODE=1 \
    CLOTHO_HEALTH__HOST=0.0.0.0 \
    CLOTHO_METRICS__HOST=0.0.0.0
WORKDIR /var/lib/clotho/home
# Roles without sandboxes of this machine need no root. `tools` starts as root, see docs/how-to/cluster.md.
USER 10001:10001
EXPOSE 9464 9564
# Every worker process of the container has to answer; /readyz, which an outage changes, is for balancers.
HEALTHCHECK --interval=30s --timeout=20s --start-period=60s --retries=4 \
    CMD ["python", "-m", "clotho.monitoring.probe"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "--", "clotho"]
CMD ["worker"]
