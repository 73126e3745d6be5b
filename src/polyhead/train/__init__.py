"""Turning data into weights: objectives, the loop, schedules."""
