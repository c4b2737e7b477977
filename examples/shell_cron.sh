#!/bin/sh
# Runs a shell command as a cron job. `mainspring up` must be running in this folder, or MAINSPRING_URL and
# MAINSPRING_TOKEN must be set.
set -eu

job=$(mainspring submit --name clock.sh --command 'date' --cron '* * * * *' --timezone Europe/Berlin)
mainspring job "$job"

# Run it once now and print how it ended.
mainspring job run "$job" --wait

echo "It runs each minute from now on. To stop it: mainspring job cancel $job"
