#!/usr/bin/env bash
exec evolve launch "$@" # keeps a run going until it is complete: hostfiles/until-complete.sh -n 64 experiments/walker.toml -s 1
