"""What retraining consists of: new data, trials, rollouts, approvals."""
