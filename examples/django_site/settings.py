"""The minimum settings of a site."""

from __future__ import annotations

import os

SECRET_KEY = "only for this example"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["examples.django_site"]
ROOT_URLCONF = "examples.django_site.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite3"),
        # SQLite has one writer at a time. Take the lock at the beginning of a transaction, and wait for it.
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
}
