#!/usr/bin/env bash
# node.sh SCRIPT ARGUMENTS...: one node's part of a job, inside of the container where there is one; started by job.sh.
# Task 0 runs SCRIPT too. Ray is started for recipes with engine.name nemo_rl only.
set -euo pipefail

rank=$SLURM_PROCID
script=$1
shift
arguments=("$@")
say() { printf '%(%FT%T%z)T node %s: %s\n' -1 "$rank" "$*"; }
fail() {
  say "$*" >&2
  exit 2
}
((rank == 0)) || exec >"$FUTARI_LOGS/node-$rank.log" 2>&1

python=$FUTARI_PYTHON
command -v "$python" >/dev/null || fail "FUTARI_PYTHON $python: no such program here; name the Python that has the run's packages"
if [[ $python == */* ]]; then export PATH=${python%/*}:$PATH; fi # for ray, which lies beside it
export PYTHONUNBUFFERED=1
export PYTHONPATH=$FUTARI_ROOT${NEMO_RL_SOURCE:+:$NEMO_RL_SOURCE}${PYTHONPATH:+:$PYTHONPATH}
cd "$FUTARI_ROOT"

search_port=$((9200 + SLURM_JOB_ID % 300)) # another one for another job on this machine
search_data=
ray_port=$((9600 + SLURM_JOB_ID % 300))
ray_folder=/tmp/futari-ray-$SLURM_JOB_ID
ray_address=
ray_started=
child=

leave() {
  trap - EXIT
  trap '' TERM
  if [[ -n $child ]]; then kill -TERM "$child" 2>/dev/null || true; fi
  if [[ -n $ray_started ]]; then
    stop_ray
    cp -rL "$ray_folder/session_latest/logs" "$FUTARI_LOGS/ray-$rank" 2>/dev/null || true
  fi
  if [[ -n $search_data ]]; then "$python" docker/opensearch-jvm/node.py stop --data "$search_data" || true; fi
}
trap leave EXIT
trap 'exit 143' TERM

# run COMMAND...: waits for it, but so that a signal is heard at once.
run() {
  local status=0
  "$@" &
  child=$!
  wait "$child" || status=$?
  child=
  return "$status"
}

# wait_for WHAT COMMAND...: until COMMAND succeeds, for up to 10 minutes: another node may still be pulling the container.
wait_for() {
  local what=$1 deadline=$((SECONDS + 600))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || fail "no sign of $what after 10 minutes; the logs are in $FUTARI_LOGS"
    run sleep 2
  done
}

# A node without security serves its own machine only. So each machine has one, at the same address.
start_search() {
  search_data=${FUTARI_OPENSEARCH_DATA:-/tmp/futari-opensearch-$SLURM_JOB_ID}/${SLURMD_NODENAME:-$HOSTNAME}
  "$python" docker/opensearch-jvm/node.py stop --data "$search_data" 2>/dev/null || true # left by an attempt that was killed
  "$python" docker/opensearch-jvm/node.py start \
    --data "$search_data" --port "$search_port" --heap "${FUTARI_OPENSEARCH_HEAP:-4g}" --deadline 300 >/dev/null
  say "OpenSearch at $FUTARI_OPENSEARCH_URL, data in $search_data"
}

head_is_up() { (: >"/dev/tcp/${ray_address%:*}/${ray_address##*:}") 2>/dev/null; }

head_is_known() {
  ray_address=$(cat "$FUTARI_LOGS/ray-address" 2>/dev/null) && head_is_up
}

all_are_here() {
  RAY_ADDRESS=$ray_address "$python" -c 'import sys, ray; ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
sys.exit(sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]))' "$SLURM_JOB_NUM_NODES" 2>>"$FUTARI_LOGS/ray-$rank.log"
}

# Not `ray stop`, which would end the Ray of another job on this machine too. All of ours name our folder.
stop_ray() {
  local try
  for try in 1 2 3 4 5 6 7 8 9 10; do
    pkill -TERM -f "$ray_folder/" || return 0
    sleep 0.5
  done
  pkill -KILL -f "$ray_folder/" || true # its control server does not always heed the other signal
}

# up OPTIONS...: Ray gives a node 30 seconds to come up, which a busy machine or a slow disk may need more than once.
up() {
  local try
  ray_started=yes
  for try in 1 2 3; do
    if run ray start "$@" --disable-usage-stats >>"$FUTARI_LOGS/ray-$rank.log" 2>&1; then return; fi
    say "Ray did not start ($try of 3)"
    stop_ray
    run sleep 10
  done
  fail "Ray does not start on this node; see $FUTARI_LOGS/ray-$rank.log"
}

start_ray() {
  # Workers' ports lie below the ephemeral range and apart from those that NeMo-RL gives out, 11001 to 28000.
  local options=(--min-worker-port=10002 --max-worker-port=11000)
  options+=(--resources="{\"topo_rank\": $((rank + 1))}") # in what order NeMo-RL counts the nodes
  export RAY_ENABLE_UV_RUN_RUNTIME_ENV=0                  # NeMo-RL makes its workers' environments itself
  ulimit -Sn "$(ulimit -Hn)"
  if ((rank > 0)); then
    wait_for "the Ray head" head_is_known
    up --address="$ray_address" "${options[@]}"
    return
  fi
  ray_address=$("$python" -c 'import ray; print(ray.util.get_node_ip_address())'):$ray_port
  up --head --node-ip-address="${ray_address%:*}" --port="$ray_port" --dashboard-host=127.0.0.1 \
    --temp-dir="$ray_folder" "${options[@]}"
  echo "$ray_address" >"$FUTARI_LOGS/ray-address.new"
  mv "$FUTARI_LOGS/ray-address.new" "$FUTARI_LOGS/ray-address"
  wait_for "Ray on all of $SLURM_JOB_NODELIST" all_are_here
  export RAY_ADDRESS=$ray_address # where the run finds it
  say "Ray at $ray_address, $SLURM_JOB_NUM_NODES node(s)"
}

if [[ -n ${FUTARI_START_OPENSEARCH:-} ]]; then export FUTARI_OPENSEARCH_URL=http://127.0.0.1:$search_port; fi
facts=$("$python" slurm/recipe.py "${arguments[@]}")
read -r engine nodes gpus <<<"$facts"
((SLURM_JOB_NUM_NODES == nodes)) || fail "this recipe runs on $nodes node(s), the job has $SLURM_JOB_NUM_NODES: sbatch --nodes=$nodes"
given=${SLURM_GPUS_ON_NODE:-$gpus} # Slurm says it where it gives GPUs out
((given == gpus)) || [[ $engine == local ]] || fail "this recipe runs on $gpus GPUs a node, the job has $given: sbatch --gpus-per-node=$gpus"

if [[ -n ${FUTARI_START_OPENSEARCH:-} ]]; then
  start_search
  # Task 0's index is built by the run; those of the other machines must be there before the first search.
  if ((rank > 0)); then run "$python" slurm/recipe.py --build-index "${arguments[@]}"; fi
fi
if [[ $engine == nemo_rl ]]; then start_ray; fi
if ((rank == 0)); then
  run "$python" "$script" "${arguments[@]}"
else
  while head_is_up; do run sleep 5; done # when the head goes, the job is over
fi
