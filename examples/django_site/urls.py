from __future__ import annotations

from django.urls import path

from examples.django_site import views

urlpatterns = [path("orders", views.place_order), path("orders/<int:order>", views.show_order)]
