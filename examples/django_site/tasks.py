"""The site's tasks. A worker loads this module by itself: `mainspring worker --app examples.django_site.tasks:app`."""

from __future__ import annotations

import os

import django
from django.apps import apps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_site.settings")
if not apps.ready:  # in a worker; the site itself has set Django up by now
    django.setup()

from django.db import close_old_connections, connection, transaction
from django.db.models import F

import mainspring
from examples.django_site.models import Order
from mainspring import Context, Mainspring

app = Mainspring()


@app.task("orders.charge", retries=5)
def charge(order: int, ctx: Context) -> int:
    """Charges an order once, however often this run is tried."""
    close_old_connections()  # a worker's threads live long; Django does this itself only around requests
    with transaction.atomic():
        if mainspring.exactly_once(connection, ctx):
            Order.objects.filter(pk=order).update(charged=F("charged") + F("cents"))
    return Order.objects.get(pk=order).charged
