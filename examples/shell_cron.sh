#!/bin/sh
# A shell command as a cron job. `mainspring up` must be running in this folder (or set MAINSPRING_URL and MAINSPRING_TOKEN).
set -eu

mainspring submit --job-id clock.sh --command 'date' --cron '* * * * *' --timezone Europe/Berlin
mainspring job clock.sh

# Do not wait for the minute: run it once now, and see how it ended.
mainspring run-now clock.sh --wait

# Done with it:
#   mainspring cancel clock.sh
