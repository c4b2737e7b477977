"""A Django site that hands its slow work to Mainspring. It needs django.

Start a server, the worker and the site, each from the root of the repository:

    mainspring up
    python -m examples.django_site migrate --run-syncdb
    mainspring worker --app examples.django_site.tasks:app
    python -m examples.django_site runserver

Then place an order:

    curl localhost:8000/orders -d account=ada -d cents=1000
"""
