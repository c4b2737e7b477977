#!/bin/sh
# A shell command as a cron job. `mainspring up` must be running in this folder, or MAINSPRING_URL and MAINSPRING_TOKEN be set.
set -eu

job=$(mainspring submit --name clock.sh --command 'date' --cron '* * * * *' --timezone Europe/Berlin)
mainspring job "$job"

# Do not wait for the minute: run it once now, and see how it ended.
mainspring run-now "$job" --wait

echo "It runs each minute from now on. Done with it: mainspring cancel $job"
