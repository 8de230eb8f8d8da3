#!/usr/bin/env bash
# usage: infra/terraform/mirror.sh
# Prints the folder of a local mirror of Terraform's providers; nothing where there is
# none, or where Terraform's own configuration says where providers come from.
# TF_PLUGIN_DIR names it; without that it is looked for where software is installed.
set -euo pipefail

if [ -n "${TF_PLUGIN_DIR:-}" ]; then
    printf '%s\n' "$TF_PLUGIN_DIR"
    exit
fi
config=${TF_CLI_CONFIG_FILE:-$HOME/.terraformrc}
if [ -r "$config" ] && grep -q provider_installation "$config"; then
    exit
fi
# A mirror's layout begins with the name of the registry, which every lock file has too.
for software in /opt /usr/local/share /usr/share; do
    [ -d "$software" ] || continue
    found=$(find "$software" -maxdepth 3 -type d -path '*/*.*/hashicorp' -print -quit)
    if [ -n "$found" ]; then
        dirname "$(dirname "$found")"
        exit
    fi
done
