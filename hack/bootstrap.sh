#!/usr/bin/env bash
# Makes .venv, in which everything else of the set-up is run. Quick where nothing changed, safe to run at any time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
log=$root/.build/log/bootstrap.log
progress_every_seconds=10

fail() {
  printf '\nbootstrap: %s\n' "$*" >&2
  exit 1
}

# step TITLE COMMAND...: the output goes to the log; a long step says that it is alive, a failed one how it ended.
step() {
  local title=$1 begun=$SECONDS code=0 watcher from
  shift
  echo "  $title ..."
  printf '\n=== %s: %s\n' "$title" "$*" >>"$log"
  from=$(wc -c <"$log")
  (
    # What is asleep when the step ends must hold neither the lock nor the terminal; it ends where the set-up was killed.
    while sleep "$progress_every_seconds" >/dev/null 2>&1 && kill -0 "$$" 2>/dev/null; do
      printf '    %4d s  %.100s\n' "$((SECONDS - begun))" "$(tail -n 1 "$log")"
    done
  ) 9>&- &
  watcher=$!
  "$@" >>"$log" 2>&1 </dev/null 9>&- || code=$?
  kill "$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null || true
  if [ "$code" -ne 0 ]; then
    tail -c "+$((from + 1))" "$log" | tail -n 25 | sed 's/^/    /' >&2
    fail "$title failed (exit code $code); all of its output is in $log"
  fi
}

# A Debian package where root may install it; else one sentence that says what is missing and why.
install() {
  local reason=$1
  shift
  if ! command -v apt-get >/dev/null; then
    fail "$reason; this installs it with apt on Debian and Ubuntu only: install Python 3.11 or newer with venv yourself"
  fi
  if [ "$(id -u)" -ne 0 ]; then
    fail "$reason; run as root, or first: sudo apt-get install $*"
  fi
  export DEBIAN_FRONTEND=noninteractive
  step "apt-get update" apt-get update
  step "apt-get install $*" apt-get install -y --no-install-recommends "$@"
}

suits() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if suits "$name"; then
      command -v "$name"
      return
    fi
  done
  return 1
}

python_with_venv() {
  python=$(find_python) || {
    install "no Python 3.11 or newer was found" python3 python3-venv ca-certificates
    python=$(find_python) || fail "this system's python3 is older than 3.11: install a newer one and put it on PATH"
  }
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    install "$python has no venv module" python3-venv
  fi
}

digest() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1
}

# What .venv is made from: the interpreter and its place are part of it, since a venv can be neither moved nor orphaned.
wanted_packages() {
  { echo "$root"; digest <requirements.lock; } | digest
}
wanted_project() {
  digest <pyproject.toml
}
recorded() {
  cat ".venv/$1" 2>/dev/null || true
}

make_packages() {
  echo "bootstrap: creating .venv from requirements.lock"
  python_with_venv
  rm -rf .venv
  step "$python -m venv .venv" "$python" -m venv .venv
  step "pip install -r requirements.lock" \
    .venv/bin/python -m pip install --progress-bar off --require-hashes -r requirements.lock
  wanted_packages >.venv/packages.stamp
}

make_project() {
  step "pip install --editable ." .venv/bin/python -m pip install --progress-bar off --no-deps --editable .
  wanted_project >.venv/project.stamp
}

up_to_date() {
  [ "$(recorded packages.stamp)" = "$(wanted_packages)" ] && [ -x .venv/bin/python ] && suits .venv/bin/python
}

mkdir -p "${log%/*}"
# Two runs at the same time would install into the same folder.
if command -v flock >/dev/null; then
  exec 9>.build/bootstrap.lock
  flock -n 9 || { echo "bootstrap: another run is creating .venv; waiting for it"; flock 9; }
fi
up_to_date || make_packages
[ "$(recorded project.stamp)" = "$(wanted_project)" ] || make_project
