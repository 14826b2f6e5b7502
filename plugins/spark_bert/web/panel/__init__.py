"""The quality panel inside Airflow's page: the table of all runs, and the page of each run, live while it trains.

It is a FastAPI app (app.py) and plain pages without a build step (static/), which Airflow shows in frames. A page is a
JavaScript module that fetches JSON from routes, which only read.
"""
