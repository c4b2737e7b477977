"""The dashboard in a browser: Debian's Chromium, against a real `mainspring up`."""
