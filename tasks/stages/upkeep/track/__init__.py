"""The stage track: records runs in MLflow. It makes no decisions."""
