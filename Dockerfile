# A server of count models: ddpn serve, as an ordinary user, with the versions of constraints.txt.
#
#   docker build -t ddpn-serve .
#   docker run --rm -p 8000:8000 -v "$PWD/models:/models:ro" ddpn-serve /models/visits.model
#
# Mount the folder that holds the model, not the model itself: a new version replaces the folder, and a mounted folder
# would stay the old one. A bearer token comes by -e DDPN_TOKEN or --token-file.

FROM python:3.11.13-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/ddpn
# The CPU build of torch alone first: the one of the package index brings gigabytes of CUDA.
COPY constraints.txt ./
RUN /opt/ddpn/bin/pip install --constraint constraints.txt --index-url https://download.pytorch.org/whl/cpu \
        --extra-index-url https://pypi.org/simple torch
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src ./src
RUN /opt/ddpn/bin/pip install --constraint constraints.txt '.[serve]' httptools uvloop
# Compile all kernels once, into the image.
RUN /opt/ddpn/bin/python -m ddpn.distributions all

FROM python:3.11.13-slim-bookworm
# LightGBM and torch need the OpenMP runtime.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin ddpn
COPY --from=build /opt/ddpn /opt/ddpn
ENV PATH=/opt/ddpn/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
ENTRYPOINT ["ddpn", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/models/model"]
