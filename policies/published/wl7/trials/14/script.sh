#!/usr/bin/env bash
# Repeats this trial: the card and the policy beside this script, one trial, on the same target.
set -euo pipefail
cd "$(dirname "$0")"
ccl-search run --card card.yaml --policy policy.py --iterations 0 --target dry-run --home repeat
