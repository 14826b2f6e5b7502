"""How ranks come to life on one machine or on Spark, and what is done when they are lost."""
