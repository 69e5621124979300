#!/usr/bin/env bash
# Entry point of the secured node. The image's demo set-up makes users whose passwords are printed in public documentation,
# one of which may read every index. Only admin stays, with the password from the environment, and kibanaserver (what
# Dashboards logs in as) with the same password instead of its public one.
set -euo pipefail

if [ -z "${OPENSEARCH_INITIAL_ADMIN_PASSWORD:-}" ]; then
  echo "OPENSEARCH_INITIAL_ADMIN_PASSWORD is empty: set it (8 or more characters, upper and lower case, a digit and a sign)," \
    "or start the node without security, for this machine only: docker compose --profile local up opensearch-local" >&2
  exit 1
fi

home=${OPENSEARCH_HOME:-/usr/share/opensearch}
users=$home/config/opensearch-security/internal_users.yml
hash=$(bash "$home/plugins/opensearch-security/tools/hash.sh" -env OPENSEARCH_INITIAL_ADMIN_PASSWORD | tail -n 1) || hash=
kept=
user=
while IFS= read -r line || [ -n "$line" ]; do
  if [[ $line =~ ^([A-Za-z0-9_-]+): ]]; then user=${BASH_REMATCH[1]}; fi
  case $user in
    "" | _meta | admin) ;;
    kibanaserver)
      [[ $hash == \$2* ]] || continue # no hash: better without Dashboards than with a public password
      if [[ $line =~ ^\ +hash: ]]; then line="  hash: \"$hash\""; fi
      ;;
    *) continue ;;
  esac
  kept+=$line$'\n'
done <"$users"
printf '%s' "$kept" >"$users"

exec "$home/opensearch-docker-entrypoint.sh" opensearch
