#!/usr/bin/env bash
# Keep a run going until it is complete: hostfiles/until-complete.sh "mpirun -n 64" experiments/walker.toml -s 1
# Resumes after a death or a time limit; ends with evolve's exit code when the run failed (1), the input is wrong (2), or
# two attempts in a row have added no generation.
set -u
launcher=$1
shift
before="" stopped=""
trap 'stopped=1' INT TERM USR1 # evolve gets the signal too, and ends cleanly
while :; do
    $launcher python -m evolve.run "$@" --resume
    code=$?
    [ -n "$stopped" ] && exit 75
    # mpirun may return 0 although a host was lost, or 137 for a worker: the run files are asked. No time: 75, or 0 if complete.
    asked=$(python -m evolve.run "$@" --resume --time-limit 0s 2>&1) && exit 0
    case $asked in *"nobody else is writing"*) # ranks that their launcher has left behind
        sleep 5
        continue ;;
    esac
    if [ $code -eq 2 ] || { [ $code -eq 1 ] && [ "$asked" = "$before" ]; } || { [ -n "$before" ] && [ "$asked" = "$before" ]; }; then
        echo "until-complete: given up: $asked" >&2
        exit $((code == 0 ? 1 : code))
    fi
    before=$asked
done
