"""Train several systems under one budget and tabulate the results."""
