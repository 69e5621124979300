# shellcheck shell=bash
# Sourced by the .sbatch files. What is in here runs once, on the job's first node and outside of the container; node.sh runs
# on every node. Settings, from the environment that sbatch is called in:
#
#   FUTARI_ROOT             this checkout, on a file system that all nodes see (default: the folder that sbatch is called in)
#   FUTARI_CONTAINER        an image for pyxis, a name or a .sqsh file; empty: bare metal
#   FUTARI_MOUNTS           further mounts of the container, FROM:TO,FROM:TO (the checkout is mounted where it is)
#   FUTARI_PYTHON           the Python with the run's packages (default: python in a container, else .venv/bin/python)
#   NEMO_RL_SOURCE          a checkout of NeMo-RL v0.7.0, for bare metal (the image has one)
#   FUTARI_OPENSEARCH_URL   what recipes put into corpus.index, where they do (docs/recipes.md)
#   FUTARI_START_OPENSEARCH 1: a node on every machine of the job; it sets FUTARI_OPENSEARCH_URL
#   FUTARI_OPENSEARCH_DATA  where started nodes keep their indexes (default: under /tmp, for this job)
#   FUTARI_OPENSEARCH_HEAP  heap of a started node (default: 4g)
#   FUTARI_LOG_DIR          logs of the other nodes and of Ray, in JOBID/attempt-N/ (default: runs/slurm of the checkout)
#
# Credentials of an OpenSearch are those of docs/corpus.md. The run's own output is in NAME-JOBID.log where sbatch was called.

say() { printf '%(%FT%T%z)T slurm: %s\n' -1 "$*"; }

# run_job SCRIPT ARGUMENTS...: one task a node, until it ends or the job is interrupted.
run_job() {
  local root=${FUTARI_ROOT:-$SLURM_SUBMIT_DIR} attempt=$((${SLURM_RESTART_COUNT:-0} + 1)) status=0
  local logs=${FUTARI_LOG_DIR:-$root/runs/slurm}/$SLURM_JOB_ID/attempt-$attempt
  export FUTARI_ROOT=$root FUTARI_LOGS=$logs
  mkdir -p "$logs"
  local arguments=("$@")
  if ((attempt > 1)); then without_first_time_options "$@"; fi
  local step=(srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_ON_NODE" --kill-on-bad-exit=1)
  if [[ -n ${FUTARI_CONTAINER:-} ]]; then
    export FUTARI_PYTHON=${FUTARI_PYTHON:-python}
    step+=(--container-image="$FUTARI_CONTAINER" --container-workdir="$root" --no-container-mount-home)
    step+=(--container-mounts="$root:$root${FUTARI_MOUNTS:+,$FUTARI_MOUNTS}")
  else
    export FUTARI_PYTHON=${FUTARI_PYTHON:-$root/.venv/bin/python}
  fi
  say "job $SLURM_JOB_ID, attempt $attempt on $SLURM_JOB_NODELIST: ${arguments[*]}"
  trap 'interrupted USR1' USR1
  trap 'interrupted TERM' TERM
  "${step[@]}" bash "$root/slurm/node.sh" "${arguments[@]}" &
  step_process=$!
  wait "$step_process" || status=$?
  trap - USR1 TERM
  say "ended with exit code $status"
  return "$status"
}

# interrupted SIGNAL: Slurm warns the batch shell before the time limit (--signal) or a preemption. The job goes back to the queue,
# and its next attempt resumes from the last checkpoint: a run loses nothing by being killed. Where Slurm itself has ended
# the job already (scancel, a preemption that requeues), its word stands.
interrupted() {
  trap '' USR1 TERM
  local state
  state=$(scontrol show job "$SLURM_JOB_ID" --oneliner | grep -oP '(?<=JobState=)\w+') || state=unknown
  if [[ $state == RUNNING ]]; then
    say "$1 while running: back to the queue"
    scontrol requeue "$SLURM_JOB_ID"
  else
    say "$1 while $state: not requeued from here"
  fi
  wait "$step_process" || true # Slurm ends the step
  exit 0
}

# without_first_time_options ARGUMENTS...: sets `arguments` of the caller. --fresh and --restart are done once: a later attempt
# that did them again would throw away what the earlier ones have learned.
without_first_time_options() {
  arguments=()
  while (($#)); do
    case $1 in
      --fresh | --restart=*) say "this attempt goes on, without $1" ;;
      --restart)
        say "this attempt goes on, without $1 ${2:-}"
        shift
        ;;
      *) arguments+=("$1") ;;
    esac
    shift || true
  done
}
