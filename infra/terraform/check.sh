#!/usr/bin/env bash
# usage: infra/terraform/check.sh PYTHON CHECKOV
# Format, validity of every module and example, their tests, and a scan of policies.
# What cannot be done on this machine is said and skipped, exit 0; what is wrong ends it
# with exit 1. Works on a copy: nothing is left in this folder.
set -euo pipefail
python=$1 checkov=$2
cd "$(dirname "$0")"

say() { printf '%s  infra: %s\n' "$(date +%T)" "$*"; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
declare -A job

start() {
    local name=$1
    shift
    "$@" >"$scratch/$name.log" 2>&1 &
    job[$name]=$!
}

# Prints what each job said; fails where one did.
finish() {
    local name failed=0
    for name in "$@"; do
        if wait "${job[$name]}"; then
            say "$name: right"
        else
            say "$name: WRONG"
            failed=1
        fi
        sed 's/^/    /' "$scratch/$name.log"
    done
    return $failed
}

start policies "$python" scan.py "$checkov"

if ! command -v terraform >/dev/null; then
    finish policies
    say 'SKIPPED: format, validity and tests; terraform is not installed'
    exit 0
fi

# A variable that leads nowhere makes Terraform warn in each answer.
[ -r "${TF_CLI_CONFIG_FILE:-}" ] || unset TF_CLI_CONFIG_FILE
export TF_IN_AUTOMATION=1 TF_INPUT=0 CHECKPOINT_DISABLE=1
say "with $(terraform version | head -n 1)"
terraform fmt -check -diff -recursive

mirror=$(./mirror.sh)
cp -a modules examples tests "$scratch"
cd "$scratch"

prepare() {
    local lock=() told
    [ ! -f "$1/.terraform.lock.hcl" ] || lock=(-lockfile=readonly)
    told=$(terraform -chdir="$1" init -no-color -backend=false \
        ${mirror:+-plugin-dir="$mirror"} "${lock[@]}" 2>&1) || {
        printf '%s\n' "$told"
        return 1
    }
}

valid() {
    prepare "$1" && terraform -chdir="$1" validate -no-color
}

# With a mirror every failure is ours; without one the registry may be out of reach.
if [ -z "$mirror" ] && ! prepare examples/small >reach.log 2>&1; then
    cat reach.log
    grep -q 'could not connect to' reach.log || exit 1
    finish policies
    say 'SKIPPED: validity and tests; no mirror of providers (TF_PLUGIN_DIR), no registry'
    exit 0
fi

tested() {
    valid "$1" && terraform -chdir="$1" test -no-color
}

names=()
for folder in examples/*; do
    names+=("${folder##*/}")
    start "${folder##*/}" tested "$folder"
done
# A module that an example calls is valid if the example is.
for folder in modules/*; do
    grep -q "\"../../$folder\"" examples/*/main.tf && continue
    names+=("${folder##*/}")
    start "${folder##*/}" valid "$folder"
done
finish policies "${names[@]}"
