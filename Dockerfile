# The operators as a container image: docker build -t REGISTRY/mooring:0.1.0 .
# Locked dependencies, no root, nothing written but below /tmp. Without an engine: make image OUT=mooring.tar
FROM python:3.11-slim-bookworm AS build
COPY requirements/operators.txt /requirements.txt
# Without what no program reads.
RUN python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps --no-compile \
      --only-binary=:all: --target /opt/mooring -r /requirements.txt && \
    find /opt/mooring -depth \( -name tests -o -name test -o -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' \) \
      -exec rm -rf {} + && rm -rf /opt/mooring/bin
COPY src/mooring /opt/mooring/mooring
# The embedded control plane does not run in a pod, and CEL's extensions are of use to it alone.
RUN rm -rf /opt/mooring/mooring/local /opt/mooring/cel_expr_python/ext && \
    python -m compileall -q --invalidation-mode=unchecked-hash /opt/mooring

FROM python:3.11-slim-bookworm
COPY --from=build /opt/mooring /opt/mooring
ENV PYTHONPATH=/opt/mooring PYTHONUNBUFFERED=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["python3", "-m", "mooring"]
CMD ["run"]
