# polyhead serve on a processor, with the fast engine and without torch, below 500 MB.
#
#   docker build -t polyhead .
#   docker run -p 8000:8000 -v "$PWD/runs/mine:/models/mine:ro" -e POLYHEAD_API_KEY=... polyhead
#
# Every package but polyhead itself is pinned by its hash in requirements-fast.lock; what builds
# polyhead, in requirements.lock. The base image is pinned by its tag only.

FROM python:3.12-slim AS build
WORKDIR /source
RUN python -m venv --without-pip /opt/polyhead
COPY requirements-fast.lock requirements.lock ./
RUN pip --python /opt/polyhead install --no-cache-dir --require-hashes -r requirements-fast.lock
RUN awk '/^[a-z]/ {keep = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/} keep' \
        requirements.lock > build.lock \
    && pip install --no-cache-dir --require-hashes -r build.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir wheels . \
    && pip --python /opt/polyhead install --no-cache-dir --no-deps wheels/*.whl

FROM python:3.12-slim
COPY --from=build /opt/polyhead /opt/polyhead
RUN useradd --uid 1000 --create-home polyhead \
    && install --directory --owner=polyhead /models
ENV PATH=/opt/polyhead/bin:$PATH PYTHONUNBUFFERED=1
USER 1000
WORKDIR /models
VOLUME /models
EXPOSE 8000
# Without POLYHEAD_API_KEY the server refuses to start, since other machines can reach it.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health/ready', timeout=4)"]
ENTRYPOINT ["polyhead"]
CMD ["serve", "/models/mine", "--host", "0.0.0.0", "--port", "8000"]
