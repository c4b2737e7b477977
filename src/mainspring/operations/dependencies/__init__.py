"""Jobs after jobs: edges between jobs, runs that wait for other jobs, and jobs that fire after others."""
