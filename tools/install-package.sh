#!/bin/sh
# Installs dslaunch from a .deb on Debian or Ubuntu, as the Dockerfile and `make package-check` do:
#   tools/install-package.sh dslaunch_VERSION_ARCHITECTURE.deb
# SSH=yes also installs the ssh client, which jobs over several hosts use.
set -eu
case $1 in /*) package=$1 ;; *) package=$PWD/$1 ;; esac
if [ "${SSH:-no}" = yes ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openssh-client
fi
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package"
rm -rf /var/lib/apt/lists/*
dslaunch --version
