"""Small applications that run unchanged: `mainspring up --app examples.hello:app`."""
