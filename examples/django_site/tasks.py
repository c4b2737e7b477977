"""The tasks of the site. Start a worker with `mainspring worker --app examples.django_site.tasks:app`."""

from __future__ import annotations

import os

import django
from django.apps import apps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_site.settings")
if not apps.ready:  # true in a worker; the site has already set up Django
    django.setup()

from django.db import close_old_connections, connection, transaction
from django.db.models import F

import mainspring
from examples.django_site.models import Order
from mainspring import Context, Mainspring

app = Mainspring()


@app.task("orders.charge", retries=5)
def charge(order: int, ctx: Context) -> int:
    """Charges an order once, no matter how many attempts the run has."""
    close_old_connections()  # a worker's threads live long, and Django does this only around requests
    with transaction.atomic():
        if mainspring.exactly_once(connection, ctx):
            Order.objects.filter(pk=order).update(charged=F("charged") + F("cents"))
    return Order.objects.get(pk=order).charged
