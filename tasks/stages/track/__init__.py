"""Track: write runs down in MLflow. It says what happened and decides nothing."""
