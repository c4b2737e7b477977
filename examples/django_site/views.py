from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from examples.django_site.models import Order
from examples.django_site.tasks import charge

CREDIT = 100_000


class OutOfCredit(Exception):
    pass


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    """Stores an order and submits its job after the commit, so that the worker finds the order.

    The idempotency key comes from the order. If it is submitted twice, it is still one job.
    """
    try:
        with transaction.atomic():
            order = Order.objects.create(account=request.POST["account"], cents=int(request.POST["cents"]))
            name = f"charge-{order.pk}"
            transaction.on_commit(lambda: charge.submit(order=order.pk, job_id=name, idempotency_key=name))
            if order.cents > CREDIT:
                raise OutOfCredit
    except OutOfCredit:
        return JsonResponse({"error": "out of credit"}, status=422)
    return JsonResponse({"order": order.pk}, status=202)


@require_GET
def show_order(request: HttpRequest, order: int) -> HttpResponse:
    found = get_object_or_404(Order, pk=order)
    return JsonResponse({"order": found.pk, "cents": found.cents, "charged": found.charged})
