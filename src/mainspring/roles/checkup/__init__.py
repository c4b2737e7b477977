"""What `mainspring doctor` looks at: the server from outside, the database, and this machine."""
