#!/usr/bin/env bash
# Verifies handover.pml with Spin: the protocol must hold in every shape below, and each deliberate
# break must be found. usage: handover_spin.sh SPIN CC MODEL [--large]
set -euo pipefail
spin=$1 cc=$2 model=$(realpath "$3") large=${4:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0

# check EXPECTED FLAGS...: EXPECTED is "holds" or "broken".
check() {
  local expected=$1 got states
  shift
  "$spin" -a "$@" "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
  "$cc" -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c
  # Exhaustive only if Spin neither ran out of memory nor cut the search at its depth limit.
  ./pan -m100000 >pan.log 2>&1 || true
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
  if grep -q 'errors: 0' pan.log && ! grep -Eq 'max search depth too small|out of memory|Search not completed' pan.log; then
    got=holds
  elif grep -Eq '^pan:1: (invalid end state|assertion violated)' pan.log; then
    got=broken
  else
    got=unknown
    cat pan.log
  fi
  printf '%-8s %10s states  %s\n' "$got" "$states" "$*"
  [[ $got == "$expected" ]] || { echo "  expected: $expected"; failures=$((failures + 1)); }
}

check holds
check holds -DROUNDS=2 -DONE_PHASE
check holds -DMARK -DONE_PHASE
check holds -DMARK -DOVERLAP_OFF
check holds -DMARK -DOVERLAP_OFF -DROUNDS=2 -DONE_PHASE
check holds -DMARK -DOVERLAP_OFF -DUSERS0=2 -DONE_PHASE
check holds -DASYNC -DLANES=2 -DONE_PHASE
check holds -DASYNC -DMARK -DLANES=2 -DONE_PHASE
check holds -DASYNC -DBOUNDED -DLANES=2 -DONE_PHASE
check holds -DINLINE -DONE_PHASE
if [[ $large == --large ]]; then
  check holds -DMARK
  check holds -DROUNDS=2
  check holds -DUSERS0=2 -DONE_PHASE
  check holds -DUSERS0=2
  check holds -DMARK -DROUNDS=2
  check holds -DMARK -DOVERLAP_OFF -DUSERS0=2
  check holds -DINLINE -DROUNDS=2 -DONE_PHASE
fi

check broken -DNO_RECHECK
check broken -DDOZE_AFTER_RECHECK
check broken -DLOAD_FIRST
check broken -DPARK_UNCHECKED
check broken -DPT_TRIES_ONCE -DASYNC -DLANES=2 -DONE_PHASE
check broken -DNO_SELF_RING -DMARK -DASYNC
check broken -DNO_QUEUE_LOOK -DASYNC -DLANES=2 -DONE_PHASE
check broken -DNO_WAITER_LOOK -DMARK -DOVERLAP_OFF -DROUNDS=2 -DONE_PHASE
check broken -DNO_WANTED_LOOK -DMARK -DOVERLAP_OFF -DROUNDS=2 -DONE_PHASE
check broken -DNO_STOP_POLLING -DINLINE -DONE_PHASE

exit $((failures > 0))
