"""Promote: the one stage that makes a new model the champion."""
