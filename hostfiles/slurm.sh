#!/usr/bin/env bash
# A SLURM job that stops in time, requeues itself and resumes: sbatch hostfiles/slurm.sh experiments/walker.toml -s 1 -o runs/walker
# One job for each seed: sbatch --array=1-20 hostfiles/slurm.sh experiments/walker.toml -o runs/walker
#SBATCH --job-name=evolve
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=32
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -u
# Only this shell hears of the time limit in time (B:); what it starts is asked to stop, and ends with exit code 75.
run=""
trap '[ -n "$run" ] && kill -USR1 "$run"' USR1
job=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID # the last task's SLURM_JOB_ID means the whole array
    set -- "$@" -s "$SLURM_ARRAY_TASK_ID"
fi
# EVOLVE_LAUNCHER=mpirun uses the MPI's own launcher, which also outlives dead workers where it is Open MPI 5.
launcher=${EVOLVE_LAUNCHER:-srun --mpi=pmix}
[ "$launcher" = mpirun ] || set -- --launcher "$launcher" "$@"
python -P -m evolve launch "$@" & # -P: a clone named evolve in this directory is no package
run=$!
while wait "$run"; code=$?; kill -0 "$run" 2>/dev/null; do :; done # a trap ends a wait
# Everything else is final: complete (0), failed, three attempts in a row or a whole later job without any progress.
if [ $code -eq 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
    scontrol requeue "$job"
fi
exit $code
