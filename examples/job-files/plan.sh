#!/bin/sh
# What the application of the files would change, as Markdown for a pull request. Ends with 0 also if something would, and
# with 1 if the files are wrong. Usage: plan.sh FILE... [OPTION]...
set -u
plan=$(mainspring apply "$@" --plan 2>&1)
code=$?
printf '### Mainspring plan\n\n```\n%s\n```\n' "$plan"
case $code in
0 | 2) exit 0 ;;
*) exit 1 ;;
esac
