"""What every Dag is made of: form, pipeline, pools, retries."""
