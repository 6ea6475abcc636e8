#!/bin/sh
# From an installed dslaunch to a trained model in two commands, as `make package-check` times them:
#   tools/first-step.sh [PREFIX]    PREFIX: where dslaunch is installed, /usr by default
set -eux
dslaunch model new gpt --size tiny --vocab 256 -o train.pt
dslaunch train.pt --data "${1:-/usr}/share/dslaunch/examples/gpt-kjv/genesis.tokens" --steps 5
