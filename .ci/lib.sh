# Sourced by the scripts here: stages with their durations, and where things are.
# shellcheck shell=bash
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"

# What is compiled for lints, documentation and tests: with the same features everywhere, or libraries are compiled again.
# shellcheck disable=SC2034 # those who source this use it
everything=(--locked --workspace --features isolane-rpc/tonic-server)

# stage TITLE COMMAND...: runs the command under a title, says how long it took, and returns its status.
stage() {
    local title=$1 begin=$SECONDS status=0
    shift
    printf '\n== %s\n' "$title"
    "$@" || status=$?
    printf -- '-- %s: %d s%s\n' "$title" "$((SECONDS - begin))" "$( ((status)) && echo ', FAILED')"
    return "$status"
}

# find_browser: prints the path of a Chromium, or fails.
find_browser() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$name"; then
            return
        fi
    done
    return 1
}
