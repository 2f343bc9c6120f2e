# Sourced by the scripts in this folder: stages with their durations, and paths.
# shellcheck shell=bash
# shellcheck disable=SC2034 # those who source this use the variables
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"

# Packages and features for lints, documentation, programs and tests. The features are those of the tests, so programs and tests
# share every library.
everything=(--locked --workspace --features 'isolane-rpc-library/tonic-server isolane-study-testbed/fake')
# Cargo adds the features that tests need from libraries only when it builds a test. A build with this small test shares its libraries with
# `cargo test`; without one, half of them are compiled twice.
one_test=(--test repository)

# Folder of the programs that labs, .ci/languages and the documents' commands use. `make test` builds them with its tests.
programs="${ISOLANE_PROGRAMS:-$CARGO_TARGET_DIR/release}"

# stage TITLE COMMAND...: runs the command under a title, prints its elapsed seconds and the processor seconds of its ended children,
# and returns its status.
stage() {
    # Not $$, which in a stage that runs in the background is still the first shell.
    local title=$1 begin=$SECONDS status=0 self=$BASHPID before
    shift
    before=$(processor_seconds "$self")
    printf '\n== %s\n' "$title"
    "$@" || status=$?
    printf -- '-- %s: %d s, %d s of processors%s\n' "$title" "$((SECONDS - begin))" \
        "$(($(processor_seconds "$self") - before))" "$( ((status)) && echo ', FAILED')"
    return "$status"
}

# processor_seconds PROCESS: user and system time of its ended children, in whole seconds.
processor_seconds() {
    # Fields 16 and 17 of stat are ticks of ended children; the name before them may have spaces.
    local fields
    fields=$(<"/proc/$1/stat")
    read -ra fields <<<"${fields##*) }"
    echo $(((fields[13] + fields[14]) / $(getconf CLK_TCK)))
}

# The compiler lints what it compiles (`.ci/test` in CI), so no `cargo clippy` is needed.
compiler_lints() { [[ ${RUSTC_WORKSPACE_WRAPPER:-} == clippy-driver ]]; }

# without_warnings COMMAND...: runs a command of cargo. If the command fails or prints a warning, this prints the command's output and
# fails. Cargo repeats the warnings of packages that are compiled already.
without_warnings() {
    local said
    if ! said=$("$@" 2>&1) || grep '^warning' <<<"$said" >/dev/null; then
        sed '/^ *Executable/d' <<<"$said"
        return 1
    fi
}

# outcomes_sum SYSTEM: a sum of the outcomes of its claims.
outcomes_sum() {
    local sum
    sum=$(grep "^$1/" claims/outcomes.txt | cksum)
    echo "outcomes of $1: ${sum%% *}"
}

# verdicts_sum SYSTEM: a sum of the verdicts of its claims, without their values.
verdicts_sum() {
    local sum
    sum=$(grep "^$1/" claims/outcomes.txt | cut -f 1,2 | cksum)
    echo "outcomes of $1: ${sum%% *}"
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
