"""The paper's Table 2 on any data: systems trained alike, judged alike, and set out in a table."""
