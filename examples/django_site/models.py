from __future__ import annotations

from django.db import models


class Order(models.Model):
    account = models.CharField(max_length=200)
    cents = models.IntegerField()
    charged = models.IntegerField(default=0)
