"""The quality panel inside Airflow's page: the table of all runs, and the page of each run, live while it trains.

The panel is a FastAPI app (app.py) and plain pages without a build step (static/). `spark_bert_plugin.py` shows the
pages inside Airflow as external views, which are frames, and puts a card on the dashboard. A page is an HTML file and a
JavaScript module of the same name; it fetches JSON from the routes in routes.py, which only read.
"""
