"""PostgreSQL: pool, migrations, and functions over a connection, one module per aggregate. SQL lives in sql/*.sql."""
