"""Small applications that run as they are: `mainspring up --app examples.hello:app`."""
