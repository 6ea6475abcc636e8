# dslaunch for CPUs in an image of Debian 12, built from this clone:
#   docker build -t dslaunch .
#   docker run --rm -v "$PWD:/work" dslaunch model new gpt --size tiny -o train.pt
# The steps are scripts of tools/, which `make package-check` runs in a root of debootstrap.
FROM debian:bookworm-slim AS base

# All that a build needs; the devcontainer stops here.
FROM base AS tools
COPY tools/setup.sh /src/tools/
RUN apt-get update && apt-get install -y --no-install-recommends \
        ca-certificates git make zstd binutils sudo python3 python3-pip unzip && \
    cd /src && DSL_TORCH=OFF tools/setup.sh && rm -rf /src /var/lib/apt/lists/*

FROM tools AS build
COPY . /src
WORKDIR /src
RUN make package

FROM base
COPY --from=build /src/build/dist/*.deb /src/tools/install-package.sh /tmp/dslaunch/
RUN cd /tmp/dslaunch && SSH=yes ./install-package.sh *.deb && rm -rf /tmp/dslaunch
# Training writes into the folder in which it is started.
WORKDIR /work
ENTRYPOINT ["dslaunch"]
CMD ["--help"]
