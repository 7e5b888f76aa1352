#!/usr/bin/env bash
# Moves users' volumes from the runner's namespace to the guests' own, once:
#
#   kubectl -n oxydra scale deployment/oxydra-runner --replicas=0
#   move-guests.sh [FROM [TO]]     (default: oxydra oxydra-guests)
#   helm upgrade …
#
# Ends all guests. Makes each claim anew in TO, with the volume that it had and all that is on it. No
# volume goes meanwhile, whatever its class says. Run it again if it was interrupted.
# Needs kubectl with the right to change volumes.
set -euo pipefail

from=${1:-oxydra} to=${2:-oxydra-guests}
ours=app.kubernetes.io/managed-by=oxydra-runner

field() { kubectl "${@:2}" -o "jsonpath={$1}"; }
change() { kubectl patch pv "$1" --type=merge -p "$2" >/dev/null; }

kubectl -n "$from" delete pods,networkpolicies -l "$ours"
for claim in $(kubectl -n "$from" get pvc -l "$ours" -o name); do
  of=(-n "$from" get "$claim")
  volume=$(field .spec.volumeName "${of[@]}")
  if [ -n "$volume" ]; then
    policy=$(field .spec.persistentVolumeReclaimPolicy get pv "$volume")
    kubectl -n "$to" get "$claim" >/dev/null 2>&1 || kubectl -n "$to" create -f - <<END
{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
 "metadata": {"name": "${claim#*/}", "labels": $(field .metadata.labels "${of[@]}"),
  "annotations": {"oxydra.io/user-id": "$(field '.metadata.annotations.oxydra\.io/user-id' "${of[@]}")",
                  "oxydra.io/reclaim": "$policy"}},
 "spec": $(field .spec "${of[@]}")}
END
    change "$volume" '{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}'
  fi
  kubectl -n "$from" delete "$claim"
done
for claim in $(kubectl -n "$to" get pvc -l "$ours" -o name); do
  of=(-n "$to" get "$claim")
  volume=$(field .spec.volumeName "${of[@]}")
  policy=$(field '.metadata.annotations.oxydra\.io/reclaim' "${of[@]}")
  [ -n "$volume" ] && [ -n "$policy" ] || continue
  if [ "$(field .spec.claimRef.namespace get pv "$volume")" = "$from" ]; then
    change "$volume" '{"spec": {"claimRef": {"namespace": "'"$to"'", "uid": null, "resourceVersion": null}}}'
  fi
  until [ "$(field .status.phase "${of[@]}")" = Bound ]; do sleep 1; done
  change "$volume" '{"spec": {"persistentVolumeReclaimPolicy": "'"$policy"'"}}'
  kubectl -n "$to" annotate "$claim" oxydra.io/reclaim- >/dev/null
  echo "${claim#*/} is in $to, with its volume"
done
