#!/usr/bin/env bash
# A SLURM job that stops in time, requeues itself and resumes: sbatch hostfiles/slurm.sh experiments/walker.toml -s 1 -o runs/walker
#SBATCH --job-name=evolve
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=32
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -u
trap '' USR1 # meant for the ranks, which end cleanly with exit code 75 after the episodes in flight
# The cluster's own Open MPI 5 survives dead workers with: mpirun --with-ft ulfm python -m evolve.run …
${EVOLVE_LAUNCHER:-srun --mpi=pmix} python -m evolve.run "$@" --resume --time-limit 23h50m
code=$?
if [ $code -eq 1 ] || [ $code -eq 2 ]; then
    exit $code # the run failed or the input is wrong: another attempt would do the same
fi
# A launcher may return 0 although a host was lost: the run files are asked. No time: 75, or 0 if all is complete.
python -m evolve.run "$@" --resume --time-limit 0s && exit 0
if [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit 75
