# The operators as a container image: docker build -t REGISTRY/mooring:0.1.0 .
# Locked dependencies, no root, nothing written but below /tmp. Without an engine: make image OUT=mooring.tar
FROM python:3.11-slim-bookworm AS build
COPY requirements/run.txt /requirements.txt
RUN python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
      --target /opt/mooring -r /requirements.txt && rm -rf /opt/mooring/bin
COPY src/mooring /opt/mooring/mooring
RUN python -m compileall -q --invalidation-mode=unchecked-hash /opt/mooring

FROM python:3.11-slim-bookworm
COPY --from=build /opt/mooring /opt/mooring
ENV PYTHONPATH=/opt/mooring PYTHONUNBUFFERED=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["python3", "-m", "mooring"]
CMD ["run"]
