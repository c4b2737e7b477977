#!/bin/sh
# Refuses a commit whose job files are wrong. pre-commit passes the changed files; all files of the owner are checked together.
# If no server answers, it says so and lets the commit pass. Usage: check.sh FILE...
set -u
mainspring apply "${JOB_FILES:-jobs.yaml}" --plan >/dev/null
code=$?
case $code in
0 | 2) exit 0 ;;
6) echo "no server answers: the files were not checked" >&2; exit 0 ;;
*) exit "$code" ;;
esac
